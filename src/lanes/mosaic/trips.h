// lanes/mosaic/trips.h: how often each region of our TPU kernel runs for
// a plan.
#pragma once

#include <vector>

#include "schedule/predict.h"
#include "tessera/mosaic.h"

namespace tessera {

// One batch row; `plan` is at the kernel's tile.
Result<std::vector<TripRule>> mosaic_trips(const Plan& plan,
                                           const MosaicKernel& kernel);

}  // namespace tessera
