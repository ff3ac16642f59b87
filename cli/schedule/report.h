// cli/schedule/report.h: the static profile of a program's kernels, in words
// and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "schedule/program.h"

namespace tessera::cli {

nlohmann::json schedule_json(const schedule::ScheduleReport& report);
std::string schedule_text(const schedule::ScheduleReport& report);

}  // namespace tessera::cli
