// lanes/mosaic/region_trips.h: how often each region of our TPU kernel runs for
// a plan.
#pragma once

#include <vector>

#include "lanes/mosaic/shards.h"
#include "schedule/predict.h"
#include "tessera/mosaic.h"
#include "tessera/shard.h"

namespace tessera::mosaic {

// An error if the batch has another tile than the kernel, or is too large.
Result<std::vector<schedule::TripRule>> region_trips(
    const Batch& batch, const MosaicKernel& kernel);
// The same for one device of a mesh, for each of its calls in order. A call
// without a step on the device gets one rule: batch_row runs 0 times.
Result<std::vector<std::vector<schedule::TripRule>>> call_trips(
    const Batch& batch, const Shards& shards, size_t index,
    const ShardKernel& kernel);

}  // namespace tessera::mosaic
