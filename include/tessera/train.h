// tessera/train.h: a language model trained on packed rows: each step is one
// program, compiled once, whose state stays on the device.
//
//   auto trainer = Trainer::open(options);
//   auto told = trainer->step(rows, {.learning_rate = 3e-4});  // told->loss
//   auto bytes = trainer->checkpoint();  // a .safetensors file
//   trainer->restore(*bytes);
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/data.h"
#include "tessera/layers.h"
#include "tessera/machine.h"
#include "tessera/plan.h"
#include "tessera/result.h"

namespace tessera {

// AdamW; matrices decay, norms do not.
struct OptimizerSettings {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
};

struct TrainOptions {
  ModelConfig model;
  LayerSpec spec;
  Precision precision;
  OptimizerSettings optimizer;
  int64_t rows = 1;    // of every step
  int64_t tokens = 0;  // of a row
  Tile tile = {};
  bool recompute = false;  // blocks keep their input alone
  uint64_t seed = 0;       // of the parameters before the first step
  XlaOptions xla;          // the plugin, and where programs are kept
};

struct StepRates {
  double learning_rate = 0;
  double max_norm = 1;  // gradients longer than this are scaled down to it
};

struct StepReport {
  int64_t step = 0;  // from 1
  double loss = 0;   // a token, before the step
  double gradient_norm = 0;
  int64_t tokens = 0;  // that counted
  // Score tiles of all layers, of one head: what the program counted, and what
  // the plans have. The program of a dense spec counts none.
  int64_t tiles_run = 0, tiles_planned = 0;
  double plan_ms = 0, transfer_ms = 0, run_ms = 0;
};

struct TrainCounters {
  int64_t compiles = 0, disk_hits = 0;
  double compile_ms = 0;
};

// One thread at a time may call it.
class Trainer {
 public:
  // Compiles the step, and draws the parameters.
  static Result<Trainer> open(const TrainOptions& options);
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;
  ~Trainer();

  // Rows must have the shape of the options, and ids that the model has. After
  // an error of the device the state is lost until restore().
  Result<StepReport> step(const Rows& rows, const StepRates& rates);

  int64_t steps() const;  // so far
  const std::vector<ModelParameter>& parameters() const;
  TrainCounters counters() const;
  const PluginPlace& place() const;

  // Parameters, both moments of each and the number of steps, as .safetensors.
  Result<std::string> checkpoint() const;
  // Whether restore() would take it, before anything is compiled.
  static Result<void> check(const TrainOptions& options,
                            std::string_view checkpoint);
  // Of the same model. Without moments it is the start of a new run.
  Result<void> restore(std::string_view checkpoint);

  // What open() compiles, for any compiler.
  static Result<std::string> program_text(const TrainOptions& options);
  // That changes when the program does.
  const std::string& program_key() const;

  struct State;

 private:
  explicit Trainer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tessera
