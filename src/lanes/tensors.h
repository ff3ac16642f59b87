// lanes/tensors.h: checks of an attention call's arrays, made before any work.
#pragma once

#include <cstdint>
#include <string_view>

#include "tessera/attention.h"
#include "tessera/plan.h"
#include "tessera/result.h"

namespace tessera::lanes {

// The sizes of a plan that a call's arrays must match.
struct PlanSizes {
  int64_t batch = 1;
  int64_t q_len = 0;
  int64_t kv_len = 0;
  int64_t heads = 1;  // plan heads; they divide the query heads

  static PlanSizes of(const Plan& plan) {
    return {plan.batch, plan.q_len, plan.kv_len, plan.heads};
  }
};

// Limits of the lanes with kernels, beyond those in attention.h.
inline constexpr int64_t kDimStep = 8;  // head dims are multiples of kDimStep
inline constexpr int64_t kMaxDim = 256;
inline constexpr double kMaxFactor = 1e30;  // scale, softcap, their quotient
inline constexpr double kMinCap = 1e-30;    // of a softcap that is not 0
Result<void> check_factors(std::string_view where, const AttentionShape& shape);
// Checks, for any lane, that K/V heads and plan heads divide the query heads.
Result<void> check_heads(std::string_view where, const AttentionShape& shape,
                         int64_t plan_heads);

// The checks below are made in this order. An error starts with `where`.
//   - the shape: sizes, dims, scale and softcap;
//   - each tensor: its four sizes, its dtype (F32, BF16 or F16, the same for
//     all), its data (not null, aligned) and its strides: none negative, tokens
//     at least one row apart, the last byte before 2^62;
//   - each output: no two elements coincide. In ascending order, every stride
//     must be at least the span of all smaller ones. Inputs may have strides of
//     0 over batch and heads (broadcast);
//   - each array of floats: its size, its data and its alignment;
//   - no output shares a byte with another array. Outputs and inputs may be
//     interleaved in one buffer (the q, k and v part of each token) if they
//     are disjoint modulo one of their strides; other layouts whose address
//     ranges overlap are refused.
// A dimension of size 1 may have any stride that is not negative.
Result<void> check_call(std::string_view where, const PlanSizes& plan,
                        const AttentionCall& call);  // shape and dtype
// One array of a call, by its name. The caller has checked the shape.
Result<void> check_array(std::string_view where, const PlanSizes& plan,
                         const AttentionCall& call, std::string_view name,
                         const TensorView& array, bool output);
Result<void> check_forward(std::string_view where, const PlanSizes& plan,
                           const AttentionShape& shape,
                           const ForwardTensors& tensors);
// Backward only reads the arrays of the forward pass; `lse` is required.
Result<void> check_backward(std::string_view where, const PlanSizes& plan,
                            const AttentionShape& shape,
                            const ForwardTensors& tensors,
                            const Gradients& gradients);

// The dtype and optional arrays of a compiled program, or of a call.
struct PassArrays {
  Dtype dtype = Dtype::f32;
  bool sink_logits = false, dlse = false;
};
PassArrays arrays_of(const AttentionCall& call);
Result<void> check_pass(std::string_view where, const PassArrays& due,
                        const PassArrays& found);

}  // namespace tessera::lanes
