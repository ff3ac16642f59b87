// receipt/lines.h: writes parts of a receipt as lines of text.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "base/text.h"
#include "receipt/receipt.h"

namespace tessera::receipt {

// Receipts are untrusted input, so each text is made safe to print.
class Lines {
 public:
  explicit Lines(int width = 11) : width_(width) {}  // columns for names
  void operator()(std::string_view name, std::string_view text) {
    out += fmt::format("{:<{}} {}\n", name, width_, on_a_line(text));
  }
  std::string out;

 private:
  int width_;
};

std::string time_text(double ms);                     // 3.4 ms
std::string plural(int64_t n, std::string_view one);  // "2 rows"

// Model, rows and losses of a training run.
void add_training(const Receipt& receipt, Lines& line);
// Parts of add_training(): the model with its factories, types and work per
// slot; the compiled program; and what all steps did.
void add_model(const Receipt::Training& training, Lines& line);
void add_program(const Receipt& receipt, Lines& line);
void add_steps(const Receipt::Training& training, Lines& line);
// For a plan: masks, arrays, tiles and pairs. For an operation: artifact,
// inputs, outputs and key.
void add_work(const Receipt& receipt, Lines& line);
void add_operation(const Receipt& receipt, Lines& line);
// What a TPU's matrix unit pays for the tiles.
void add_lowering(const Receipt::Lowering& lowering, Lines& line);
void add_sinks(const Receipt::SinkTelemetry& sinks, Lines& line);
// Picks, their unions and the keys that are read.
std::string picks_text(const Receipt::Routing& routing);
void add_routing(const Receipt::Routing& routing, double ms, Lines& line);

}  // namespace tessera::receipt
