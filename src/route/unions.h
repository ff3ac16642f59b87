// route/unions.h: the union of what the queries of a tile row pick.
#pragma once

#include "route/legality.h"
#include "tessera/route.h"

namespace tessera::routing {

// Picks are -1 or one of the row's blocks.
PickUnions make_unions(const PickSizes& sizes, Ints picks, int64_t query_tile,
                       UnionMethod method, int threads);

// Sets the capacity: `ceiling`, or where that is 0 the bucket of the widest
// row. The error names the first tile row that is above it.
Result<void> set_capacity(int64_t ceiling, PickUnions& unions,
                          std::string_view where = "route");

}  // namespace tessera::routing
