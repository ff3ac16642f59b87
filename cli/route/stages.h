// cli/route/stages.h: the work of `tessera route`; each fills its part of the
// job's report.
#pragma once

#include "cli/route/job.h"
#include "tessera/batch.h"

namespace tessera::cli {

Result<void> route_timed(RouteJob& job);

// What hierarchical routing found of what exhaustive routing finds.
Result<void> find_recall(RouteJob& job);

// The plan of the picks, which views the job's, beside that of `causal` alone.
Result<BorrowedBatch> plan_timed(RouteJob& job);

}  // namespace tessera::cli
