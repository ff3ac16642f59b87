// route/unions.h: the union of the picks of a tile row's queries.
#pragma once

#include "route/legality.h"
#include "tessera/route.h"

namespace tessera::routing {

// Picks must be -1 or a block of the row.
PickUnions make_unions(const PickSizes& sizes, Ints picks, int64_t query_tile,
                       UnionMethod method, int threads);

// Sets the capacity to `ceiling`, or if that is 0 to the bucket of the widest
// row. An error names the first tile row that exceeds the capacity.
Result<void> set_capacity(int64_t ceiling, PickUnions& unions,
                          std::string_view where = "route");

}  // namespace tessera::routing
