// tessera/reference.h: dense fp64 attention, forward and backward: the oracle
// of every lane. Any mask, O(q_len * kv_len) time, one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tessera/attention.h"
#include "tessera/facts.h"
#include "tessera/plan.h"
#include "tessera/result.h"

namespace tessera {

// All arrays are row-major: q [batch, heads, q_len, head_dim], k [batch,
// kv_heads, kv_len, head_dim], v [.., v_head_dim], sink_logits [heads].
struct AttentionInputs {
  std::span<const double> q, k, v;
  std::optional<std::span<const double>> sink_logits;
};

struct AttentionOutputs {
  std::vector<double> out;  // [batch, heads, q_len, v_head_dim]
  std::vector<double> lse;  // [batch, heads, q_len], natural
  int64_t pairs = 0;        // legal ones, which were scored: all heads
};

// Each the shape of its input; dsink_logits is empty without sink logits.
struct AttentionGradients {
  std::vector<double> dq, dk, dv, dsink_logits;
};

// What one call may ask for at most; above is an error of kind limit.
inline constexpr int64_t kMaxReferencePairs = int64_t{1} << 34;   // all heads
inline constexpr int64_t kMaxReferenceValues = int64_t{1} << 28;  // of `out`

Result<AttentionOutputs> reference_forward(const Request& request,
                                           const Facts& facts,
                                           const AttentionShape& shape,
                                           const AttentionInputs& inputs);

// `dout` and `dlse` are the gradients of some loss by `out` and `lse`; `dlse`
// may be empty: no gradient reaches the log-sum-exp.
Result<AttentionGradients> reference_backward(const Request& request,
                                              const Facts& facts,
                                              const AttentionShape& shape,
                                              const AttentionInputs& inputs,
                                              std::span<const double> dout,
                                              std::span<const double> dlse);

// Exact meanings
//
// Heads. Query head h reads K/V head h / (heads / kv_heads) and the mask and
// picks of plan head h / (heads / plan heads); plan heads divide heads.
//
// Score. softcap * tanh(scale * q.k / softcap), or scale * q.k without softcap.
// A negative or zero scale is allowed.
//
// No legal key. The output is exactly 0, the log-sum-exp is -inf, or the
// head's sink logit where sink logits are given. Then `dlse` flows to that
// logit and nowhere else; `dout` flows nowhere, whatever it holds.
//
// Illegal keys are never read, so a NaN or an Inf in them changes no bit of
// the queries they are illegal for. A key that is illegal for every query has
// gradients of exactly 0.
//
// Legal keys are read even where their probability rounds to 0. A NaN in one
// makes the query's output NaN (one in K its log-sum-exp too), and so the
// gradients of all that this query reads.
//
// Infinite scores follow IEEE, without softcap: -inf has probability 0 as long
// as one legal score or the sink logit is finite; a row that is -inf
// throughout, or holds a +inf, has no defined softmax and is NaN. Softcap
// brings either to -softcap or softcap. A sink logit that is not finite counts
// as such a score. Finite scores of any size are safe.
//
// Order. Sums over keys run in ascending key order, the sink logit last; sums
// into dk, dv and dsink_logits over queries in ascending order and, for one
// query, over heads in ascending order. So results are the same bits in every
// call, and do not depend on how many plan heads describe the same mask.

}  // namespace tessera
