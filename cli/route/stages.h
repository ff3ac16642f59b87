// cli/route/stages.h: the work of `tessera route`. Each function fills its part
// of the job's report.
#pragma once

#include "cli/route/job.h"
#include "tessera/batch.h"

namespace tessera::cli {

Result<void> route_timed(RouteJob& job);

// Computes the recall of hierarchical routing against exhaustive routing.
Result<void> find_recall(RouteJob& job);

// Plans with the picks, which are views of the job's arrays, and counts the
// tiles of a plan with only `causal`.
Result<BorrowedBatch> plan_timed(RouteJob& job);

}  // namespace tessera::cli
