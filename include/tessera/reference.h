// tessera/reference.h: dense fp64 attention, forward and backward: the oracle
// of every lane. Any mask, O(q_len * kv_len) time, one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tessera/facts.h"
#include "tessera/plan.h"
#include "tessera/result.h"

namespace tessera {

struct AttentionShape {
  int64_t heads = 1;     // query heads
  int64_t kv_heads = 1;  // divides heads
  int64_t head_dim = 0;
  int64_t v_head_dim = 0;
  std::optional<double> scale;  // absent: 1 / sqrt(head_dim)
  double softcap = 0;           // 0 is off
};

// All arrays are row-major: q [batch, heads, q_len, head_dim], k [batch,
// kv_heads, kv_len, head_dim], v [.., v_head_dim], sink_logits [heads].
struct AttentionInputs {
  std::span<const double> q, k, v;
  std::optional<std::span<const double>> sink_logits;
};

struct AttentionOutputs {
  std::vector<double> out;  // [batch, heads, q_len, v_head_dim]
  std::vector<double> lse;  // [batch, heads, q_len], natural
};

struct AttentionGradients {
  std::vector<double> dq, dk, dv, dsink_logits;
};

Result<AttentionOutputs> reference_forward(const Request& request,
                                           const Facts& facts,
                                           const AttentionShape& shape,
                                           const AttentionInputs& inputs);

// `dlse` may be empty: no gradient reaches the log-sum-exp.
Result<AttentionGradients> reference_backward(const Request& request,
                                              const Facts& facts,
                                              const AttentionShape& shape,
                                              const AttentionInputs& inputs,
                                              std::span<const double> dout,
                                              std::span<const double> dlse);

}  // namespace tessera
