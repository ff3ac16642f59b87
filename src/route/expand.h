// route/expand.h: the picks that attention runs on: each query's own, or the
// union of its tile row.
#pragma once

#include <vector>

#include "route/unions.h"

namespace tessera::routing {

// Gives each query of a tile row the row's union: [batch, heads, q_len,
// widest], ascending, then -1. At least one slot.
std::vector<int32_t> expand_unions(const PickSizes& sizes,
                                   const PickUnions& unions, int64_t query_tile,
                                   int threads);

}  // namespace tessera::routing
