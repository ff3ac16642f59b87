// cli/route/view.h: what of the result the pictures of `tessera route` show.
#pragma once

#include "cli/route/job.h"
#include "cli/run/options.h"

namespace tessera::cli {

// Its batch row, head and width. `sizes` are those of drawn inputs.
Result<void> read_view(const RouteCommandFlags& flags, const RunOptions& sizes,
                       RouteJob& job);

}  // namespace tessera::cli
