// shard/bound.h: a lower bound of the columns that must travel for any
// assignment of rows.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "shard/groups.h"

namespace tessera::shard {

// Rows with their work, and the columns that each row needs.
struct Demand {
  std::vector<int64_t> work;
  std::vector<uint32_t> start = {0};  // per row, in `column`; rows + 1
  std::vector<uint32_t> column;       // columns of a row, without repeats
  int64_t columns = 0;
};
// A group's demand in tiles: work of all lists, columns of its own lists.
Demand demand_of(const Plan& plan, const TileWork& work, const Group& group);

// The maximum for one shard.
struct Limits {
  double work = 0;
  double rows = std::numeric_limits<double>::infinity();
};
// The limits asked for, or the actual maximum if it is larger. With tasks there
// is no row limit, since a shard may compute tasks and own few tokens.
Limits limits_of(const Demand& d, const Group& group,
                 const ShardOptions& options, int64_t shards);

// The number of columns that must travel within the limits. A column counts
// once for each shard that receives it. A lower bound.
int64_t least_columns(const Demand& d, const Limits& limits, int64_t shards);

}  // namespace tessera::shard
