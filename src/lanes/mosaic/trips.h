// lanes/mosaic/trips.h: how often each region of our TPU kernel runs for
// a plan.
#pragma once

#include <vector>

#include "schedule/predict.h"
#include "tessera/mosaic.h"

namespace tessera::mosaic {

// The batch must be planned at the kernel's tile.
Result<std::vector<schedule::TripRule>> mosaic_trips(
    const Batch& batch, const MosaicKernel& kernel);

}  // namespace tessera::mosaic
