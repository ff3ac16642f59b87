// bench/shard/measure.h: balance and traffic of shards over drawn batches.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/result.h"
#include "tessera/shard.h"

namespace tessera::bench {

// Lognormal documents under `causal & documents`, with tile 256 and four query
// heads to a KV head.
struct ShardCase {
  int64_t tokens;
  double mean;
  int64_t shards;
  // Goals for traffic, relative to an all-gather of K and V. The goals below,
  // for work and tokens, are the same for all cases.
  double goal_needed, goal_sent;
};
inline constexpr double kGoalWork = 1.05;
inline constexpr double kGoalTokens = 1.02;

std::vector<ShardCase> shard_cases();

// How rows are spread and how tiles travel. If the balance of rows ignores what
// is sent, a ragged exchange sends exactly what rounds need.
struct ShardWay {
  Balance balance = Balance::rows;
  TileExchange exchange = TileExchange::rounds;
  Evenness evenness = {};
};
std::vector<ShardWay> shard_ways();
// Ways from even to uneven: the more uneven, the less has to travel.
std::vector<ShardWay> frontier_ways();

// The median and the 90th percentile of all seeds.
struct Spread {
  double median = 0, p90 = 0;
};
struct ShardFigures {
  Spread work, tokens, needed, sent, backward_needed, backward_sent;
  Spread least;  // traffic that every way to spread rows this evenly has
  Spread late;   // forward work that waits for tiles of other devices
  // Medians of CPU time.
  double plan_ms = 0;   // from raw ids to the plan
  double shard_ms = 0;  // from the plan to all shards
};

Result<ShardFigures> measure_shards(const ShardCase& c, const ShardWay& way,
                                    int64_t seeds);

}  // namespace tessera::bench
