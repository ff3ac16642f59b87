// cli/route/job_arrays.h: q and k or picks of a routing job, from files or
// drawn.
#pragma once

#include "cli/route/job.h"
#include "cli/run/options.h"
#include "tessera/result.h"

namespace tessera::cli {

// q and k of --inputs.
Result<void> read_arrays(const RouteCommandFlags& flags, request::Layout layout,
                         RouteJob& job);
// Inputs of `sizes`.
Result<void> draw_inputs(const RouteCommandFlags& flags,
                         const RunOptions& sizes, request::Layout layout,
                         RouteJob& job);
// Those of --picks, which is a file.
Result<void> read_given_picks(const RouteCommandFlags& flags, RouteJob& job);

}  // namespace tessera::cli
