// route/expand.h: what attention runs on: each query's own picks, or those of
// its tile row.
#pragma once

#include <vector>

#include "route/unions.h"

namespace tessera::routing {

// Each query of a tile row gets the row's union: [batch, heads, q_len, widest],
// ascending, -1 last. At least one slot.
std::vector<int32_t> expand_unions(const PickSizes& sizes,
                                   const PickUnions& unions, int64_t query_tile,
                                   int threads);

}  // namespace tessera::routing
