// route/unions.h: the union of what the queries of a tile row pick.
#pragma once

#include "route/legality.h"
#include "tessera/route.h"

namespace tessera {

// Picks ascend for each query, -1 last, all within the row's blocks.
PickUnions make_unions(const PickSizes& sizes,
                       const std::vector<int32_t>& picks, int64_t query_tile,
                       UnionMethod method, int threads);

// Sets the capacity: `ceiling`, or the bucket of the widest row. The error
// names the first tile row that is above it.
Result<void> set_capacity(std::optional<int64_t> ceiling, PickUnions& unions);

}  // namespace tessera
