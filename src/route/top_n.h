// route/top_n.h: picks blocks from their scores.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "route/rows.h"
#include "route/score.h"

namespace tessera::routing {

// The blocks that a routing query picks regardless of score: its own blocks,
// which hold a position of its queries, and the first `sinks` blocks in which
// its document has keys, except future ones. Ascending, without repeats.
void forced_blocks(const RouteRow& row, const RoutingQuery& query,
                   int64_t block, int64_t kv_len, int64_t sinks,
                   std::vector<int32_t>& forced);

struct ScoredBlock {
  float score = 0;
  int32_t block = 0;
};

// Memory and a guess that one query passes to the next, whose scores are
// similar. Picks do not depend on the guess.
struct TopScratch {
  std::vector<ScoredBlock> kept, order;
  // Scores below `from` are examined only if too few blocks reach it.
  float from = -std::numeric_limits<float>::infinity();
};

// Picks the forced blocks and the best other blocks, `top` = picks.size() in
// total, or fewer if there are fewer. Ties go to the lower block; a block that
// scores -inf can be picked like any other. `blocks` ascend, as do the picks;
// -1 fills the rest. There are at most `top` forced blocks.
void pick_top(std::span<const float> scores, std::span<const int32_t> blocks,
              std::span<const int32_t> forced, TopScratch& scratch,
              std::span<int32_t> picks);

}  // namespace tessera::routing
