// cli/route/job_arrays.h: reads or draws q and k, or reads picks, for a routing
// job.
#pragma once

#include "cli/route/job.h"
#include "cli/run/options.h"
#include "tessera/result.h"

namespace tessera::cli {

// Reads q and k of --inputs.
Result<void> read_arrays(const RouteCommandFlags& flags, request::Layout layout,
                         RouteJob& job);
// Draws q and k with these sizes.
Result<void> draw_inputs(const RouteCommandFlags& flags,
                         const RunOptions& sizes, request::Layout layout,
                         RouteJob& job);
// Reads the picks of --picks, which names a file.
Result<void> read_given_picks(const RouteCommandFlags& flags, RouteJob& job);

}  // namespace tessera::cli
