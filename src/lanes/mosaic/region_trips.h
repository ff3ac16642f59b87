// lanes/mosaic/region_trips.h: how often each region of our TPU kernel runs for
// a plan.
#pragma once

#include <vector>

#include "schedule/predict.h"
#include "tessera/mosaic.h"

namespace tessera::mosaic {

// An error of a batch that is not planned at the kernel's tile, or too large
// for it.
Result<std::vector<schedule::TripRule>> region_trips(
    const Batch& batch, const MosaicKernel& kernel);

}  // namespace tessera::mosaic
