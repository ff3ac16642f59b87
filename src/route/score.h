// route/score.h: what each query of a tile scores each block of its document.
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

// The pooled keys of a batch row that stand for a block: those of compression
// blocks that lie wholly inside one. Packed for the product: key i is lane
// i % kPanelKeys of panel i / kPanelKeys.
struct ScoreKeys {
  struct Key {
    int32_t index = 0;  // of its compression block
    int32_t last = 0;   // its last token
    int32_t block = 0;  // number of its block in the document's `blocks`
  };
  std::vector<int32_t> start;        // per document, into keys
  std::vector<Key> keys;             // by document, then index
  std::vector<int32_t> block_start;  // per document, into blocks
  std::vector<int32_t> blocks;       // that have a key, by document, ascending
  std::vector<int32_t> first_key;    // per block, in keys; one more
  int64_t panel_count = 0;           // of a head
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
  // From the panel with the document's first key on; `head` is a KV head.
  const float* panels_of(int32_t document, int64_t head) const {
    const int64_t panel = start[static_cast<size_t>(document)] / kPanelKeys;
    return panels.data() + (head * panel_count + panel) * dim * kPanelKeys;
  }
  // The lane of the first key there.
  int64_t lane_of(int32_t document) const {
    return start[static_cast<size_t>(document)] % kPanelKeys;
  }
};

ScoreKeys pack_score_keys(const PooledRow& pooled, const Compression& c,
                          int64_t block, int64_t kv_heads, int64_t dim);

// One that picks: a query or, by the query-tile rule, the queries of one
// document in a tile.
struct RoutingQuery {
  int32_t document = 0;
  int32_t query = 0;          // the first
  int64_t position = 0;       // of the last
  std::vector<int32_t> more;  // the others, ascending

  template <class Visit>
  void each(Visit&& visit) const {
    visit(query);
    for (const int32_t q : more) visit(q);
  }
};

// Those of queries [begin, end), in the order of their first queries. Queries
// that see no key are none's. `place` is memory to reuse, whatever it holds.
std::vector<RoutingQuery> routing_queries(const RouteRow& row, RouteRule rule,
                                          int64_t begin, int64_t end,
                                          std::vector<size_t>& place);

// Block scores of the routing queries of one tile and one head that picks. A
// block without a score that counts is no candidate.
struct TileScores {
  std::vector<int64_t> start;  // per routing query, into values; one more
  std::vector<float> values;
  // Candidate i of query r is blocks[start[r] + i]; empty: it is blocks_of its
  // document [i].
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

// `heads` are the query heads whose scores are added, ascending; `end` cuts
// compression blocks that the window leaves out.
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

// A block's score is the greatest of its pooled keys whose last token is not
// after the query.
void score_tile(const ScoreTile& tile, ScoreScratch& scratch, TileScores& out);

// The same of some blocks alone: those of the groups of `ratio` blocks that
// each routing query has in `metas` [queries, k], -1 is none.
struct MetaChoice {
  int64_t ratio = 8;
  int64_t k = 0;
  std::span<const int32_t> metas;  // ascending for each query
};
void score_children(const ScoreTile& tile, const MetaChoice& choice,
                    ScoreScratch& scratch, TileScores& out);

}  // namespace tessera::routing
