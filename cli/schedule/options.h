// cli/schedule/options.h: reads and checks the options of `tessera schedule`.
#pragma once

#include <optional>

#include "cli/schedule/flags.h"
#include "request/load.h"
#include "schedule/program.h"

namespace tessera::cli {

// Checks which flags go together.
Result<void> check_flags(const ScheduleFlags& flags);

// Reads target, trips and heads; the caller adds the request.
Result<schedule::ScheduleOptions> read_schedule_options(
    const ScheduleFlags& flags);

// Absent if no request is given.
Result<std::optional<request::Resolved>> asked_request(
    request::RequestFlags flags);

}  // namespace tessera::cli
