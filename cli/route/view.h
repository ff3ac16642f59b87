// cli/route/view.h: the part of the result that `tessera route` draws.
#pragma once

#include "cli/route/job.h"
#include "cli/run/options.h"

namespace tessera::cli {

// Reads batch row, head and width of the pictures. `sizes` are those of drawn
// inputs.
Result<void> read_view(const RouteCommandFlags& flags, const RunOptions& sizes,
                       RouteJob& job);

}  // namespace tessera::cli
