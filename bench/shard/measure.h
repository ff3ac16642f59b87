// bench/shard/measure.h: how even shards are, and what travels, over drawn
// batches.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/result.h"
#include "tessera/shard.h"

namespace tessera::bench {

// Lognormal documents under `causal & documents`, tile 256, four query heads to
// a KV head.
struct ShardCase {
  int64_t tokens;
  double mean;
  int64_t shards;
  // What it should reach, beside an all-gather of K and V; work and tokens are
  // the same for all.
  double goal_needed, goal_sent;
};
inline constexpr double kGoalWork = 1.05;
inline constexpr double kGoalTokens = 1.02;

std::vector<ShardCase> shard_cases();

// How rows are spread and tiles travel. Where rows do not look at what is sent,
// a ragged exchange sends what rounds need.
struct ShardWay {
  Balance balance = Balance::rows;
  TileExchange exchange = TileExchange::rounds;
  Evenness evenness = {};
};
std::vector<ShardWay> shard_ways();
// From even to uneven: less has to travel.
std::vector<ShardWay> frontier_ways();

// The middle of all seeds, and what nine of ten do not exceed.
struct Spread {
  double median = 0, p90 = 0;
};
struct ShardFigures {
  Spread work, tokens, needed, sent, backward_needed, backward_sent;
  Spread least;  // what no way to spread rows so evenly avoids
  Spread late;   // of the forward work, what waits for tiles of others
  // Medians, of the processor.
  double plan_ms = 0;   // from raw ids to the plan
  double shard_ms = 0;  // from the plan to all shards
};

Result<ShardFigures> measure_shards(const ShardCase& c, const ShardWay& way,
                                    int64_t seeds);

}  // namespace tessera::bench
