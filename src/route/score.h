// route/score.h: each query's scores for the blocks of its document.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "route/pool.h"
#include "route/product.h"
#include "route/rows.h"
#include "tessera/route.h"

namespace tessera::routing {

// The pooled keys of a batch row that score blocks: those whose compression
// block lies wholly inside one block. Packed for the product: key i is lane i %
// kPanelKeys of panel i / kPanelKeys.
struct ScoreKeys {
  struct Key {
    int32_t index = 0;  // index of its compression block
    int32_t last = 0;   // its last token
    int32_t block = 0;  // index of its block in the document's `blocks`
  };
  std::vector<int32_t> start;        // per document, into keys
  std::vector<Key> keys;             // by document, then index
  std::vector<int32_t> block_start;  // per document, into blocks
  std::vector<int32_t> blocks;       // blocks with keys, by document, ascending
  std::vector<int32_t> first_key;    // per block, into keys; blocks + 1
  int64_t panel_count = 0;           // panels of a head
  std::vector<float> panels;         // [kv_heads, panels, dim, kPanelKeys]
  int64_t dim = 0;

  std::span<const Key> keys_of(int32_t document) const {
    const auto d = static_cast<size_t>(document);
    return {keys.data() + start[d],
            static_cast<size_t>(start[d + 1] - start[d])};
  }
  std::span<const int32_t> blocks_of(int32_t document) const {
    const auto d = static_cast<size_t>(document);
    return {blocks.data() + block_start[d],
            static_cast<size_t>(block_start[d + 1] - block_start[d])};
  }
  // The panels from the one with the document's first key; `head` is a KV head.
  const float* panels_of(int32_t document, int64_t head) const {
    const int64_t panel = start[static_cast<size_t>(document)] / kPanelKeys;
    return panels.data() + (head * panel_count + panel) * dim * kPanelKeys;
  }
  // The lane of the document's first key in that panel.
  int64_t lane_of(int32_t document) const {
    return start[static_cast<size_t>(document)] % kPanelKeys;
  }
};

ScoreKeys pack_score_keys(const PooledRow& pooled, const Compression& c,
                          int64_t block, int64_t kv_heads, int64_t dim);

// A unit that picks: a query or, by the query-tile rule, the queries of one
// document in a tile.
struct RoutingQuery {
  int32_t document = 0;
  int32_t query = 0;          // first query
  int64_t position = 0;       // position of the last query
  std::vector<int32_t> more;  // the other queries, ascending

  template <class Visit>
  void each(Visit&& visit) const {
    visit(query);
    for (const int32_t q : more) visit(q);
  }
};

// The routing queries of queries [begin, end), ordered by their first query.
// Queries that see no key are in none. `place` is scratch with any contents.
std::vector<RoutingQuery> routing_queries(const RouteRow& row, RouteRule rule,
                                          int64_t begin, int64_t end,
                                          std::vector<size_t>& place);

// Block scores of the routing queries of one tile and one head that picks. A
// block in which no pooled key counts for the query is no candidate.
struct TileScores {
  std::vector<int64_t> start;  // per routing query, into values; queries + 1
  std::vector<float> values;
  // Candidate i of query r is blocks[start[r] + i]; if `blocks` is empty, block
  // i of blocks_of(its document).
  std::vector<int32_t> blocks;
  int64_t products = 0;  // scores of pooled keys that counted
  // The first score that is a NaN.
  struct Nan {
    int32_t query = 0;
    int32_t block = 0;
  };
  std::optional<Nan> nan;
};

// Memory that scoring reuses.
struct ScoreScratch {
  std::vector<float> queries, dots, row;
};

// The scores of `heads` query heads from `first_head` on are added in ascending
// order. Compression blocks from `end` on are outside the window.
struct ScoreTile {
  const TensorView& q;
  const ScoreKeys& keys;
  std::span<const RoutingQuery> queries;
  int64_t batch_row = 0;
  int64_t first_head = 0;
  int64_t heads = 1;
  int64_t kv_head = 0;
  int64_t end = 0;
  Isa isa = Isa::portable;
};

// A block's score: the maximum over its keys that end at or before the query.
void score_tile(const ScoreTile& tile, ScoreScratch& scratch, TileScores& out);

// The blocks to score: those in the groups of `ratio` blocks that each routing
// query lists in `metas` [queries, k]; -1: none.
struct MetaChoice {
  int64_t ratio = 8;
  int64_t k = 0;
  std::span<const int32_t> metas;  // ascending for each query
};
void score_children(const ScoreTile& tile, const MetaChoice& choice,
                    ScoreScratch& scratch, TileScores& out);

}  // namespace tessera::routing
