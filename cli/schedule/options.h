// cli/schedule/options.h: the options of `tessera schedule`, before any work.
#pragma once

#include <optional>

#include "cli/schedule/flags.h"
#include "request/load.h"
#include "schedule/program.h"

namespace tessera::cli {

// Which flags go together.
Result<void> check_flags(const ScheduleFlags& flags);

// Target, trips and heads; the request is added.
Result<schedule::ScheduleOptions> read_schedule_options(
    const ScheduleFlags& flags);

// Nothing where no request is given.
Result<std::optional<request::Resolved>> asked_request(
    request::RequestFlags flags);

}  // namespace tessera::cli
