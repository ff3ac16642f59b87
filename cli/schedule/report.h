// cli/schedule/report.h: the static profile of a program's kernels, as text and
// JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "cli/command.h"
#include "cli/compile/asked_kernel.h"
#include "schedule/program.h"

namespace tessera::cli {

// `own`: Tessera's own kernel, if the profile is of it; else null.
nlohmann::json schedule_json(const schedule::ScheduleReport& report,
                             const AskedKernel* own);
std::span<const JsonField> schedule_json_fields();
std::string schedule_text(const schedule::ScheduleReport& report,
                          const AskedKernel* own);

}  // namespace tessera::cli
