// tests/attention_case.h: attention calls on random arrays in awkward layouts,
// and their expected results: the reference's values with error bounds of fp32.
#pragma once

#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "lanes/cpu/cpu.h"
#include "lanes/reference/bound.h"
#include "tessera/attention.h"
#include "tests/random_case.h"

namespace tessera::testing {

// Layouts in memory. bhsd and bshd are dense. fused: q, k and v of a token side
// by side. padded: gaps between rows, heads and batch rows, and no alignment
// beyond one element.
enum class Layout : uint8_t { bhsd, bshd, fused, padded };

struct AttentionCase {
  RandomCase plan;  // masks, facts, lengths and tile
  AttentionShape shape{1, 1, 8, 8, {}, 0};
  Dtype dtype = Dtype::f32;
  Layout layout = Layout::bhsd;
  bool sinks = false, lse = true, dlse = false;
  double q_size = 1;  // standard deviation of q
  uint64_t seed = 1;  // of the numbers in the arrays
  // With sinks: logits that heads take in turn. Empty: random logits.
  std::vector<float> sink_logits;
};
std::string describe(const AttentionCase& c);

// A case with this mask and these facts; all else is random.
AttentionCase random_attention(const RandomCase& plan);

// The arrays of a case. Numbers that no legal pair reads are NaN or Inf: gaps,
// keys that no query may see, and rows of q and dout that see no key.
class AttentionArrays {
 public:
  explicit AttentionArrays(const AttentionCase& c);
  AttentionArrays(const AttentionArrays&) = delete;

  // Views of the arrays.
  ForwardTensors forward(bool with_lse);
  Gradients gradients();

  // Fills all outputs with NaN.
  void clear_outputs();
  // Names an output that was written outside of its rows.
  std::optional<std::string> spilled() const;
  // Every bit of all outputs, gaps included.
  std::vector<uint8_t> bits() const;

  // Sets a number of an input, rounded to the dtype. `array` is 'q', 'k' or
  // 'v', or 'd' for dout.
  void set(char array, int64_t b, int64_t h, int64_t t, int64_t d,
           double value);

  const AttentionCase c;
  Request request;
  Facts facts;

 private:
  struct Tensor {
    MutableTensorView view;
    size_t buffer = 0;
  };
  struct Sizes {
    int64_t heads, tokens, dim;
  };
  std::vector<Tensor> place(const std::vector<Sizes>& group);
  void fill(const Tensor& t, double size, const std::vector<uint8_t>& live);

  std::mt19937_64 random_;
  std::vector<std::vector<uint8_t>> buffers_;  // of exactly the needed size
  Tensor q_, k_, v_, out_, dout_, dq_, dk_, dv_;
  std::vector<float> sinks_, lse_, dlse_, dsinks_;
};

// The expected arrays, dense, in the order of their dimensions.
struct Wanted {
  std::vector<reference::Expected> out, lse, dq, dk, dv, dsinks;
};
// `flushes`: the lane reads and writes subnormal numbers as 0.
Wanted wanted(AttentionArrays& arrays, bool flushes = false);
// The same for any call; only its inputs are read.
Wanted wanted_of(const Request& request, const Facts& facts,
                 const AttentionShape& shape, const ForwardTensors& tensors,
                 const Gradients& gradients, bool flushes = false);

// Names the worst of the dense fp32 numbers that exceed their error bound.
std::optional<std::string> values_fault(
    const char* name, const std::vector<reference::Expected>& want,
    std::span<const float> got);

// Names the worst element that exceeds its error bound.
std::optional<std::string> forward_fault(const Wanted& want,
                                         const ForwardTensors& t);
std::optional<std::string> backward_fault(const AttentionCase& c,
                                          const Wanted& want,
                                          const Gradients& g);

// Sink logits near the limits of float32, some of which overflow when
// multiplied by log2(e), and others far above or far below all scores.
std::vector<float> extreme_sinks();

// Runs the cpu lane forward and backward, and checks all that it wrote and the
// counts that it returned.
std::optional<std::string> cpu_fault(AttentionArrays& arrays,
                                     const Wanted& want, Isa isa, int threads);
// The same on every ISA of this machine.
std::optional<std::string> cpu_fault(const AttentionCase& c);

}  // namespace tessera::testing
