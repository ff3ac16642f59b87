// shard/bound.h: what must travel however rows are spread.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "shard/groups.h"

namespace tessera::shard {

// Rows with their work, and the columns that each needs.
struct Demand {
  std::vector<int64_t> work;
  std::vector<uint32_t> start = {0};  // of a row's columns; rows + 1
  std::vector<uint32_t> column;       // of a row, each once
  int64_t columns = 0;
};
// Tiles of the group: work of all lists, columns of the group's own.
Demand demand_of(const Plan& plan, const TileWork& work, const Group& group);

// Of one shard, at most.
struct Limits {
  double work = 0;
  double rows = std::numeric_limits<double>::infinity();
};
// What was asked, or what came out where that is less even. Tasks may be
// computed by who has few of the tokens.
Limits limits_of(const Demand& d, const Group& group,
                 const ShardOptions& options, int64_t shards);

// Columns that must travel within the limits: as a sum, a column once for each
// shard that is sent it. A lower bound: even the best way may need more.
int64_t least_columns(const Demand& d, const Limits& limits, int64_t shards);

}  // namespace tessera::shard
