// cli/schedule/kernels.h: reads or compiles the kernels of `tessera schedule`.
#pragma once

#include <optional>
#include <string>

#include "cli/compile/asked_kernel.h"
#include "cli/schedule/flags.h"
#include "schedule/dump.h"
#include "schedule/program.h"

namespace tessera::cli {

// The first flag of a kernel that is given; "" if none is. Flags of a request
// and its heads do not count, since they go with any program.
std::string first_kernel_flag(const ScheduleFlags& flags);

// Whether the flags name Tessera's own kernel, also for a dump.
bool asks_own_kernel(const ScheduleFlags& flags);

// Reads a dump, or compiles a program or Tessera's own kernel for `request`.
// For its own kernel it sets the trips and heads in `options`, and `own`.
Result<schedule::Dump> read_kernels(const ScheduleFlags& flags,
                                    const request::Resolved* request,
                                    schedule::ScheduleOptions& options,
                                    std::optional<AskedKernel>& own);

}  // namespace tessera::cli
