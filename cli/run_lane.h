// cli/run_lane.h: what `tessera run` must know of a lane beside how it runs.
#pragma once

#include <string>

#include "cli/attention_data.h"
#include "dispatch/runner.h"

namespace tessera::cli {

// What a lane with kernels would refuse only when all arrays are there; `lane`
// is what errors call it.
Result<void> check_dims(const AttentionData& shapes, std::string_view lane);

// What the lane needs beside the arrays, about.
double more_bytes(LaneId lane, const AttentionData& shapes,
                  const LaneOptions& options);

// Runs a lane that is open over the arrays.
Result<LaneRun> run_lane(const Runner& runner, const Batch& batch,
                         AttentionData& data, const LaneOptions& options,
                         bool& forward_ran);

}  // namespace tessera::cli
