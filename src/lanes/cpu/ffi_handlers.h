// lanes/cpu/ffi_handlers.h: our CPU kernels as typed handlers of XLA's foreign
// function interface. XLA calls them on a thread of its own; they use our pool
// beside it, and where another call has that, this thread alone.
//
// Forward takes q, k, v, sink logits where there are any, then the arrays of a
// batch (lanes/cpu/batch_arrays.h): window bounds, row starts and entries of
// both lists, facts. It gives the output, the log-sum-exp and, where a third
// result is there, how many score tiles of one head ran. Backward takes out,
// lse, dout and dlse before those arrays, of which dlse may be empty.
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

// Where the build had no header of XLA's, an error that says so.
Result<std::vector<FfiHandler>> ffi_handlers();

// What the probe makes of a number.
constexpr int32_t probe_answer(int32_t number) { return number ^ 0x7e55e7a; }

}  // namespace tessera::cpu
