// tessera/attention.h: what one attention call computes and which arrays it
// reads and writes, the same for every lane. Views do not own their arrays. Any
// layout with a contiguous last dimension is accepted. docs/attention.md gives
// the exact definitions.
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

// [batch, heads, tokens, dim]. Element (b, h, t, d) is at data + b *
// batch_stride + h * head_stride + t * token_stride + d, in elements.
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
  double softcap = 0;           // 0: off

  double scale_or_default() const {
    return scale.value_or(1 / std::sqrt(static_cast<double>(head_dim)));
  }
};

// Upper limits over all lanes; most lanes accept less.
inline constexpr int64_t kMaxHeads = int64_t{1} << 16;
inline constexpr int64_t kMaxHeadDim = int64_t{1} << 16;

// q, k, v and out have one dtype. No output may overlap an input.
struct ForwardTensors {
  TensorView q;  // [batch, heads, q_len, head_dim]
  TensorView k;  // [batch, kv_heads, kv_len, head_dim]
  TensorView v;  // [batch, kv_heads, kv_len, v_head_dim]
  std::optional<std::span<const float>> sink_logits;  // [heads]
  MutableTensorView out;  // [batch, heads, q_len, v_head_dim]
  std::span<float> lse;   // [batch, heads, q_len]; empty: not written
};

// What the backward pass reads and writes besides the arrays of its forward
// pass. An empty `dlse` means that the log-sum-exp has no gradient.
struct Gradients {
  TensorView dout;                // [batch, heads, q_len, v_head_dim]
  std::span<const float> dlse;    // [batch, heads, q_len] or empty
  MutableTensorView dq, dk, dv;   // shaped as q, k, v
  std::span<float> dsink_logits;  // [heads]; only with sink logits
};

// The properties of a call that are known before its arrays. A program is
// compiled for them and the contract of the batch.
struct AttentionCall {
  AttentionShape shape;
  Dtype dtype = Dtype::f32;
  bool sink_logits = false;
  bool backward = false;
  bool dlse = false;            // backward reads a gradient of the log-sum-exp
  bool sink_telemetry = false;  // Prepared::sink_telemetry() will be called
};

// Ends the calls that it was passed to. Any thread may set it. A call reads the
// flag between tiles (on a plugin before and after its program) and then
// returns an error of kind `stopped`; its outputs are unspecified.
class StopFlag {
 public:
  StopFlag() = default;
  // `asked` is called each time that the flag is read, on any thread of the
  // call; returning true stops the call. It must not throw.
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

// Sink logits that take a share of the softmax but are not in the log-sum-exp,
// as in index-sparse kernels on GPUs. Attention runs without sink logits, on
// any lane, and they are applied to its output:
//
//   run forward: out, lse                      // of the keys alone
//   join_sinks(out, lse, sink_logits, joined);
//   ... dout, dlse: the gradients of joined and lse ...
//   sink_gradients(joined, lse, sink_logits, dout, dlse, to);
//   run backward with out, lse, to.dout, to.dlse
//
// This differs from the sink logits of ForwardTensors, which lse includes.

// Writes joined = out / (1 + exp(sink - lse)), computed in fp64 and rounded
// once; `out` was itself rounded, so a 16-bit element is rounded twice in all.
// The result for a query without a legal key is 0. lse is [batch, heads,
// tokens], sink_logits is [heads]. `joined` is `out` or does not overlap it.
Result<void> join_sinks(const TensorView& out, std::span<const float> lse,
                        std::span<const float> sink_logits,
                        const MutableTensorView& joined);

// The outputs of sink_gradients(): dout and dlse for the backward pass, and the
// gradient of the sink logits. All three are written.
struct SinkGradients {
  MutableTensorView dout;         // the argument `dout`, or of its shape
  std::span<float> dlse;          // [batch, heads, tokens]
  std::span<float> dsink_logits;  // [heads]
};

// An empty `dlse` means that the log-sum-exp has no gradient. `dlse` must not
// be to.dlse.
Result<void> sink_gradients(const TensorView& joined,
                            std::span<const float> lse,
                            std::span<const float> sink_logits,
                            const TensorView& dout, std::span<const float> dlse,
                            const SinkGradients& to);

}  // namespace tessera
