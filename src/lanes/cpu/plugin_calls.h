// lanes/cpu/plugin_calls.h: our CPU kernels for the programs of a PJRT plugin.
#pragma once

#include "pjrt/place.h"

namespace tessera::cpu {

// A plugin that calls them.
inline constexpr const char* kCallingPlugin = "lammps_jax_pjrt_cpu";

// Gives the plugin our handlers (lanes/cpu/ffi_handlers.h), then runs a program
// that calls one: a plugin may take handlers whose programs find none. Once a
// client. The device must be a CPU: kernels read its memory.
Result<void> add_handlers(const pjrt::Place& on);

}  // namespace tessera::cpu
