// cli/schedule_picture.h: slot use over a kernel's loop as SVG.
#pragma once

#include <string>

#include "cli/schedule_report.h"

namespace tessera::cli {

// Of the loop that holds the most bundles of the kernel that has the most, or
// of the whole kernel where it has no loop.
Result<std::string> schedule_picture(const ScheduleReport& report);

}  // namespace tessera::cli
