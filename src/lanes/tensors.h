// lanes/tensors.h: the arrays of an attention call, checked before any work.
#pragma once

#include <cstdint>
#include <string_view>

#include "tessera/attention.h"
#include "tessera/plan.h"
#include "tessera/result.h"

namespace tessera::lanes {

// What the plan says about the arrays.
struct PlanSizes {
  int64_t batch = 1;
  int64_t q_len = 0;
  int64_t kv_len = 0;
  int64_t heads = 1;  // plan heads; divide the query heads

  static PlanSizes of(const Plan& plan) {
    return {plan.batch, plan.q_len, plan.kv_len, plan.heads};
  }
};

// What a lane with kernels takes, beyond what attention.h says.
inline constexpr int64_t kDimStep = 8;  // head dims are multiples of it
inline constexpr int64_t kMaxDim = 256;
inline constexpr double kMaxFactor = 1e30;  // scale, softcap, their quotient
inline constexpr double kMinCap = 1e-30;    // unless it is 0
Result<void> check_factors(std::string_view where, const AttentionShape& shape);
// Of any lane and before any: how many heads, and that K/V heads and those of
// the plan share them evenly.
Result<void> check_heads(std::string_view where, const AttentionShape& shape,
                         int64_t plan_heads);

// Checked of every call, in this order, `where` starting the error:
//   - the shape: sizes, dims, scale and softcap;
//   - of each tensor its four sizes, its dtype (F32, BF16 or F16, one for all),
//     its data (there and aligned) and its strides: none negative, tokens at
//     least one row apart, the last byte within 2^62;
//   - of an output also that no two elements coincide: going from its smallest
//     stride to its largest, each steps over all that the smaller ones span.
//     Inputs may have strides of 0 over batch and heads: broadcast;
//   - of each array of floats its size, its data and its alignment;
//   - that no output shares a byte with another array. Outputs and inputs may
//     be interleaved in one buffer (the q, k and v part of each token) where
//     one of their strides tells them apart; other layouts whose address
//     ranges meet are refused.
// The stride of a dimension of size 1 only must not be negative.
Result<void> check_call(std::string_view where, const PlanSizes& plan,
                        const AttentionCall& call);  // its shape and dtype
// One of its arrays, by its name; the shape has been checked by whom it is for.
Result<void> check_array(std::string_view where, const PlanSizes& plan,
                         const AttentionCall& call, std::string_view name,
                         const TensorView& array, bool output);
Result<void> check_forward(std::string_view where, const PlanSizes& plan,
                           const AttentionShape& shape,
                           const ForwardTensors& tensors);
// Backward only reads the arrays of its forward pass, whose `lse` must be
// there.
Result<void> check_backward(std::string_view where, const PlanSizes& plan,
                            const AttentionShape& shape,
                            const ForwardTensors& tensors,
                            const Gradients& gradients);

// Beside the shape: what a program was compiled for, or what a call brings.
struct PassArrays {
  Dtype dtype = Dtype::f32;
  bool sink_logits = false, dlse = false;
};
PassArrays arrays_of(const AttentionCall& call);
Result<void> check_pass(std::string_view where, const PassArrays& due,
                        const PassArrays& found);

}  // namespace tessera::lanes
