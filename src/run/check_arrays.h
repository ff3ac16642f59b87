// run/check_arrays.h: what a call asks for, and its arrays against what was
// prepared. Their errors are nobody's failure to start.
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
// The arrays of the forward pass have been checked.
Result<void> check_backward_arrays(const Request& request,
                                   const AttentionCall& call,
                                   const ForwardTensors& tensors,
                                   const Gradients& gradients);

}  // namespace tessera::run
