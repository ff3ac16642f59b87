// tessera/attention.h: what one attention call computes and which arrays it
// reads and writes, whatever lane runs it. Views of arrays own nothing; any
// layout whose last dimension is contiguous will do. docs/attention.md has the
// exact meanings.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "tessera/result.h"

namespace tessera {

enum class Dtype : uint8_t {
  i32,
  i64,
  f16,
  bf16,
  f32,
  f64,
  i8,
  i16,
  u8,
  boolean
};

std::string_view to_string(Dtype dtype);  // "I32", as .safetensors spells it
int64_t byte_width(Dtype dtype);

// [batch, heads, tokens, dim]; element (b, h, t, d) lies b * batch_stride + h *
// head_stride + t * token_stride + d elements after `data`.
template <class Pointer>
struct BasicTensorView {
  Pointer data = nullptr;
  Dtype dtype = Dtype::f32;
  int64_t batch = 1, heads = 1, tokens = 0, dim = 0;
  int64_t batch_stride = 0, head_stride = 0, token_stride = 0;

  // Contiguous [batch, heads, tokens, dim].
  static BasicTensorView bhsd(Pointer data, Dtype dtype, int64_t batch,
                              int64_t heads, int64_t tokens, int64_t dim) {
    return {
        data,         dtype, batch, heads, tokens, dim, heads * tokens * dim,
        tokens * dim, dim};
  }
  // Contiguous [batch, tokens, heads, dim].
  static BasicTensorView bshd(Pointer data, Dtype dtype, int64_t batch,
                              int64_t heads, int64_t tokens, int64_t dim) {
    return {data, dtype,      batch, heads, tokens, dim, tokens * heads * dim,
            dim,  heads * dim};
  }
};

using TensorView = BasicTensorView<const void*>;
using MutableTensorView = BasicTensorView<void*>;

inline TensorView as_input(const MutableTensorView& t) {
  return {t.data, t.dtype,        t.batch,       t.heads,       t.tokens,
          t.dim,  t.batch_stride, t.head_stride, t.token_stride};
}

struct AttentionShape {
  int64_t heads = 1;     // query heads
  int64_t kv_heads = 1;  // divides heads
  int64_t head_dim = 0;
  int64_t v_head_dim = 0;
  std::optional<double> scale;  // absent: 1 / sqrt(head_dim)
  double softcap = 0;           // 0 is off

  double scale_or_default() const {
    return scale.value_or(1 / std::sqrt(static_cast<double>(head_dim)));
  }
};

// The most that any lane takes; most lanes take less.
inline constexpr int64_t kMaxHeads = int64_t{1} << 16;
inline constexpr int64_t kMaxHeadDim = int64_t{1} << 16;

// q, k, v and out share one dtype; no output may overlap an input.
struct ForwardTensors {
  TensorView q;  // [batch, heads, q_len, head_dim]
  TensorView k;  // [batch, kv_heads, kv_len, head_dim]
  TensorView v;  // [batch, kv_heads, kv_len, v_head_dim]
  std::optional<std::span<const float>> sink_logits;  // [heads]
  MutableTensorView out;  // [batch, heads, q_len, v_head_dim]
  std::span<float> lse;   // [batch, heads, q_len]; empty: not wanted
};

// What the backward pass reads and writes beside the arrays of its forward
// pass. `dlse` may be empty: no gradient reaches the log-sum-exp.
struct Gradients {
  TensorView dout;              // [batch, heads, q_len, v_head_dim]
  std::span<const float> dlse;  // [batch, heads, q_len] or empty
  MutableTensorView dq, dk, dv;
  std::span<float> dsink_logits;  // [heads], where sink logits are given
};

// What a call is, known before its arrays are: with the batch, what a program
// is compiled for.
struct AttentionCall {
  AttentionShape shape;
  Dtype dtype = Dtype::f32;
  bool sink_logits = false;
  bool backward = false;
  bool dlse = false;            // backward takes the log-sum-exp's gradient
  bool sink_telemetry = false;  // forward passes will be asked for theirs
};

// Any thread may set it. The calls that were handed it look at it between tiles
// (on a plugin before and after its program), and end with an error of the kind
// `stopped`. Their outputs are then unspecified.
class StopFlag {
 public:
  StopFlag() = default;
  // `asked` may say stop too, each time that a call looks, on whichever of its
  // threads; it must not throw.
  explicit StopFlag(std::function<bool()> asked) : asked_(std::move(asked)) {}

  void stop() { stopped_.store(true, std::memory_order_relaxed); }
  void reset() { stopped_.store(false, std::memory_order_relaxed); }
  bool stopped() const {
    return stopped_.load(std::memory_order_relaxed) || (asked_ && asked_());
  }

 private:
  std::atomic<bool> stopped_{false};
  std::function<bool()> asked_;
};

// Sink logits that take their share of the softmax and stay out of the log-sum-
// exp, as index-sparse kernels on GPUs have them. Attention runs without any,
// on whichever lane, and joins them behind it:
//
//   run forward: out, lse                      // of the keys alone
//   join_sinks(out, lse, sink_logits, joined);
//   ... dout, dlse: the gradients of joined and lse ...
//   sink_gradients(joined, lse, sink_logits, dout, dlse, to);
//   run backward with out, lse, to.dout, to.dlse
//
// The sink logits of ForwardTensors are the other kind: lse holds them.

// joined = out / (1 + exp(sink - lse)), in fp64 and rounded once, so an element
// of 16 bits is rounded once more than attention rounds it. A query without a
// legal key stays 0. lse is [batch, heads, tokens], sink_logits [heads]; joined
// may be `out` itself, else it lies before or behind it.
Result<void> join_sinks(const TensorView& out, std::span<const float> lse,
                        std::span<const float> sink_logits,
                        const MutableTensorView& joined);

// What backward takes as dout and dlse, and the gradient of the sink logits.
// All three are written.
struct SinkGradients {
  MutableTensorView dout;         // shaped as the given one, or that one
  std::span<float> dlse;          // [batch, heads, tokens]
  std::span<float> dsink_logits;  // [heads]
};

// `dlse` may be empty: no gradient reaches the log-sum-exp. It must not be
// to.dlse.
Result<void> sink_gradients(const TensorView& joined,
                            std::span<const float> lse,
                            std::span<const float> sink_logits,
                            const TensorView& dout, std::span<const float> dlse,
                            const SinkGradients& to);

}  // namespace tessera
