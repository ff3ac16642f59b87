// lanes/cpu/plugin_calls.h: registers our CPU kernels with a PJRT plugin, so
// that its programs can call them.
#pragma once

#include "pjrt/place.h"

namespace tessera::cpu {

// A plugin that calls registered kernels, named in error messages.
inline constexpr const char* kCallingPlugin = "lammps_jax_pjrt_cpu";

// Registers our handlers (lanes/cpu/ffi_handlers.h), then runs a program that
// calls one: a plugin may accept handlers that its programs do not find. Done
// once for each client. The device must be a CPU: kernels read its memory.
Result<void> add_handlers(const pjrt::Place& on);

}  // namespace tessera::cpu
