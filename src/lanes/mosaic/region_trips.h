// lanes/mosaic/region_trips.h: how often each region of our TPU kernel runs for
// a plan.
#pragma once

#include <vector>

#include "lanes/mosaic/shards.h"
#include "schedule/predict.h"
#include "tessera/mosaic.h"
#include "tessera/shard.h"

namespace tessera::mosaic {

// An error of a batch that is not planned at the kernel's tile, or too large
// for it.
Result<std::vector<schedule::TripRule>> region_trips(
    const Batch& batch, const MosaicKernel& kernel);
// The same of one device of a mesh, for each of its calls in their order; of a
// call that has no step there, that it never runs.
Result<std::vector<std::vector<schedule::TripRule>>> call_trips(
    const Batch& batch, const Shards& shards, size_t index,
    const ShardKernel& kernel);

}  // namespace tessera::mosaic
