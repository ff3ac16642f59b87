// plan/splash_run.h: Splash's arrays enlarged beyond what a batch row needs.
#pragma once

#include <cstdint>

#include "tessera/layouts.h"
#include "tessera/plan.h"

namespace tessera::plan {

// Enlarges the arrays of one shrunk q shard to `width` slots a row (dkv: a
// column) and `blocks` tile masks; neither may be fewer than the arrays have.
// Added slots are inactive and repeat the last slot, so they fetch nothing new.
// If no tile is partial, all cells name the first mask, which the kernel never
// reads.
SplashMaskInfo widen_splash(SplashMaskInfo info, const Tile& tile, bool dkv,
                            int64_t width, int64_t blocks);

}  // namespace tessera::plan
