// run/check_arrays.h: checks the arrays of a pass against the prepared call.
// An error here is the caller's: no fallback lane steps in for it.
#pragma once

#include <string_view>

#include "tessera/attention.h"
#include "tessera/plan.h"
#include "tessera/result.h"

namespace tessera::run {

Result<void> check_dlse(std::string_view where, const AttentionCall& call);
Result<void> check_forward_arrays(const Request& request,
                                  const AttentionCall& call,
                                  const ForwardTensors& tensors);
// Assumes that check_forward_arrays() has passed.
Result<void> check_backward_arrays(const Request& request,
                                   const AttentionCall& call,
                                   const ForwardTensors& tensors,
                                   const Gradients& gradients);

}  // namespace tessera::run
