// cli/schedule/kernels.h: the kernels that `tessera schedule` is asked about.
#pragma once

#include <optional>
#include <string>

#include "cli/compile/asked_kernel.h"
#include "cli/schedule/flags.h"
#include "schedule/dump.h"
#include "schedule/program.h"

namespace tessera::cli {

// The first that is given, beside those of a request and its heads, which go
// with any program; "" where none is.
std::string first_kernel_flag(const ScheduleFlags& flags);

// A dump is of our kernel where its flags say so.
bool asks_own_kernel(const ScheduleFlags& flags);

// From a dump, or by compiling a program or our own kernel for `request`. Of
// our own, `options` learns its trips and heads, and `own` is what it is.
Result<schedule::Dump> read_kernels(const ScheduleFlags& flags,
                                    const request::Resolved* request,
                                    schedule::ScheduleOptions& options,
                                    std::optional<AskedKernel>& own);

}  // namespace tessera::cli
