// lanes/reference/reference.h: dense fp64 attention, forward and backward, to
// check every lane with. Any mask, O(q_len * kv_len) time, one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tessera/attention.h"
#include "tessera/facts.h"
#include "tessera/plan.h"
#include "tessera/result.h"

namespace tessera::reference {

// All arrays are row-major: q [batch, heads, q_len, head_dim], k [batch,
// kv_heads, kv_len, head_dim], v [.., v_head_dim], sink_logits [heads].
struct AttentionInputs {
  std::span<const double> q, k, v;
  std::optional<std::span<const double>> sink_logits;
};

struct AttentionOutputs {
  std::vector<double> out;  // [batch, heads, q_len, v_head_dim]
  std::vector<double> lse;  // [batch, heads, q_len], natural
  int64_t pairs = 0;        // legal pairs scored, all heads
};

// Each has the shape of its input; dsink_logits is empty without sink logits.
struct AttentionGradients {
  std::vector<double> dq, dk, dv, dsink_logits;
};

// Limits of one call; beyond them it fails with kind limit.
inline constexpr int64_t kMaxReferencePairs = int64_t{1} << 34;   // all heads
inline constexpr int64_t kMaxReferenceValues = int64_t{1} << 28;  // of `out`

Result<AttentionOutputs> reference_forward(const Request& request,
                                           const Facts& facts,
                                           const AttentionShape& shape,
                                           const AttentionInputs& inputs);

// `dout` and `dlse` are the gradients of a loss with respect to `out` and
// `lse`. An empty `dlse` stands for zeros.
Result<AttentionGradients> reference_backward(const Request& request,
                                              const Facts& facts,
                                              const AttentionShape& shape,
                                              const AttentionInputs& inputs,
                                              std::span<const double> dout,
                                              std::span<const double> dlse);

// The same for facts that are bound already. `stop` is checked between queries.
Result<AttentionOutputs> reference_forward(const Request& request,
                                           const Legality& legality,
                                           const AttentionShape& shape,
                                           const AttentionInputs& inputs,
                                           const StopFlag* stop = nullptr);
Result<AttentionGradients> reference_backward(const Request& request,
                                              const Legality& legality,
                                              const AttentionShape& shape,
                                              const AttentionInputs& inputs,
                                              std::span<const double> dout,
                                              std::span<const double> dlse,
                                              const StopFlag* stop = nullptr);

// docs/attention.md has the exact meanings.

}  // namespace tessera::reference
