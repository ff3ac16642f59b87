// route/top_n.h: from block scores to picks.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "route/rows.h"
#include "route/score.h"

namespace tessera::routing {

// Blocks that a routing query picks whatever they score: its own and the first
// `sinks` blocks in which its document has keys, those from the future aside.
// The own blocks are those that hold a position of its queries. Ascending, each
// once.
void forced_blocks(const RouteRow& row, const RoutingQuery& query,
                   int64_t block, int64_t kv_len, int64_t sinks,
                   std::vector<int32_t>& forced);

struct ScoredBlock {
  float score = 0;
  int32_t block = 0;
};

// What one query leaves to the next, which scores alike: memory and a guess.
// Picks do not depend on it.
struct TopScratch {
  std::vector<ScoredBlock> kept, order;
  // Lower scores are looked at where too few are not lower.
  float from = -std::numeric_limits<float>::infinity();
};

// The forced blocks and, of the others, those that score most: `top` together,
// fewer where there are fewer. Ties go to the lowest block; a score of -inf
// picks as any other. `blocks` ascend, as do the picks; -1 fills the rest.
// There are at most `top` = picks.size() forced blocks.
void pick_top(std::span<const float> scores, std::span<const int32_t> blocks,
              std::span<const int32_t> forced, TopScratch& scratch,
              std::span<int32_t> picks);

}  // namespace tessera::routing
