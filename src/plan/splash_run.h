// plan/splash_run.h: Splash's arrays with more room than a batch row needs.
#pragma once

#include <cstdint>

#include "tessera/layouts.h"
#include "tessera/plan.h"

namespace tessera::plan {

// Of one q shard, shrunk: with `width` slots a row (dkv: a column) and `blocks`
// masks of tiles, no fewer than it has. Slots beyond are dead and say what the
// last one says, so that nothing is fetched anew. Where no tile is partial all
// cells name the first mask, and none reads it.
SplashMaskInfo widen_splash(SplashMaskInfo info, const Tile& tile, bool dkv,
                            int64_t width, int64_t blocks);

}  // namespace tessera::plan
