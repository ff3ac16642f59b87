// lanes/cpu/ffi_handlers.h: our CPU kernels as typed handlers of XLA's foreign
// function interface. XLA calls a handler on one of its own threads; the
// handler also uses our thread pool, unless another call is using the pool.
//
// Forward takes q, k, v, the sink logits if there are any, then the arrays of a
// batch (lanes/cpu/batch_arrays.h): window bounds, row starts and entries of
// both lists, facts. It gives the output, the log-sum-exp and, if the program
// has a third result, the number of score tiles that ran, with heads that share
// a list counted once. Backward takes out, lse, dout and dlse (which may be
// empty) before the arrays of the batch.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/result.h"

namespace tessera::cpu {

inline constexpr const char* kForwardTarget = "tessera_forward";
inline constexpr const char* kBackwardTarget = "tessera_backward";
inline constexpr const char* kProbeTarget = "tessera_probe";

struct FfiHandler {
  const char* target;
  void* handler;  // an XLA_FFI_Handler
};

// Fails if the build did not have XLA's header.
Result<std::vector<FfiHandler>> ffi_handlers();

// The probe's result for a number.
constexpr int32_t probe_answer(int32_t number) { return number ^ 0x7e55e7a; }

}  // namespace tessera::cpu
