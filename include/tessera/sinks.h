// tessera/sinks.h: sink logits that take their share of the softmax and stay
// out of the log-sum-exp, as index-sparse kernels on GPUs have them. Attention
// runs without any, on whichever lane, and joins them behind it:
//
//   run forward: out, lse                      // of the keys alone
//   join_sinks(out, lse, sink_logits, joined);
//   ... dout, dlse: gradients by joined and lse ...
//   sink_gradients(joined, lse, sink_logits, dout, dlse, to);
//   run backward with out, lse, to.dout, to.dlse
//
// The sink logits of ForwardTensors are the other kind: lse holds them.
#pragma once

#include <span>

#include "tessera/result.h"
#include "tessera/tensor.h"

namespace tessera {

// joined = out / (1 + exp(sink - lse)), in fp64 and rounded once, so an element
// of 16 bits is rounded once more than attention rounds it. A query without a
// legal key stays 0. lse is [batch, heads, tokens], sink_logits [heads]; joined
// may be `out` itself, else they share no byte.
Result<void> join_sinks(const TensorView& out, std::span<const float> lse,
                        std::span<const float> sink_logits,
                        const MutableTensorView& joined);

// What backward takes in place of the gradients by joined and lse, and the
// logits' own. All three are written.
struct SinkGradients {
  MutableTensorView dout;         // as the given one; may be that itself
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
