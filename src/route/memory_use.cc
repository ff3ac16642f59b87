// route/memory_use.cc: sizes of the data that the stages make.
#include "route/memory_use.h"

#include <algorithm>

#include "base/integers.h"
#include "base/threads.h"
#include "route/pool.h"
#include "route/product.h"
#include "route/score.h"

namespace tessera::routing {
namespace {

// Scores that are held at a time, over all jobs of a group.
constexpr int64_t kGroupScores = int64_t{1} << 21;
// The products that a worker holds (more if needed for kMinQueries), and the
// number of queries beyond which a product gains nothing.
constexpr int64_t kJobProducts = int64_t{1} << 22;
constexpr int64_t kMinQueries = 16;
constexpr int64_t kMaxQueries = 256;

double number(int64_t n) { return static_cast<double>(n); }

// Bytes of pooled values and packed panels, and kPlaces of indices a key.
double level_bytes(const std::vector<RouteRow>& rows, const Compression& c,
                   const RouteShape& shape) {
  constexpr double kPlaces = 64;
  const double key =
      2 * 4 * number(shape.kv_heads) * number(shape.dim) + kPlaces;
  double keys = 0;
  for (const RouteRow& row : rows) keys += number(count_pooled_keys(row, c));
  return key * keys;
}

}  // namespace

int64_t heads_of(RouteRule rule, const RouteShape& shape) {
  return rule == RouteRule::query_head ? shape.heads : shape.kv_heads;
}

int route_threads(int asked) {
  return std::clamp(asked > 0 ? asked : machine_threads(), 1, kMaxThreads);
}

ScoreCut score_cut(const Request& r, const std::vector<RouteRow>& rows,
                   const RouteSettings& s, int64_t metas, int threads) {
  ScoreCut cut;
  const int64_t tile = std::min(s.query_tile, r.q_len);
  if (s.rule == RouteRule::query_tile) {
    // There is one routing query per document, with scores of its own blocks.
    cut.queries = tile;
    for (const RouteRow& row : rows) {
      const int64_t pickers = std::min(tile, row.documents);
      cut.scores =
          std::max(cut.scores,
                   static_cast<int64_t>(row.blocks.size()) + pickers * metas);
    }
  } else {
    const int64_t keys = ceil_div(r.kv_len, s.stride);
    cut.queries = std::min(
        tile, std::clamp(kJobProducts / keys, kMinQueries, kMaxQueries));
    cut.scores = cut.queries * (ceil_div(r.kv_len, s.block) + metas);
  }
  cut.parts = ceil_div(tile, cut.queries);
  cut.group = std::clamp<int64_t>(
      kGroupScores / std::max<int64_t>(cut.scores, 1), 2 * threads, 4096);
  return cut;
}

int64_t metas_kept(const Request& r, const RouteSettings& s) {
  return std::min(s.top_metas, ceil_div(r.kv_len, s.block * s.meta_ratio));
}

double pick_bytes(const PickSizes& s, int64_t query_tile) {
  const double lists = number(s.batch) * number(s.heads);
  const double tile = number(std::min(query_tile, s.q_len));
  const double union_blocks = std::min(number(s.blocks()), tile * number(s.k));
  // Unions are found row by row, then concatenated, so they exist twice.
  return 8 * lists *
         (number(s.q_len) * number(s.k) +
          number(ceil_div(s.q_len, query_tile)) * union_blocks);
}

double route_bytes(const Request& r, const std::vector<RouteRow>& rows,
                   const RouteSettings& s, const RouteShape& shape,
                   int threads) {
  const int64_t heads = heads_of(s.rule, shape);
  const int64_t metas = s.hierarchical ? metas_kept(r, s) : 0;
  const ScoreCut cut = score_cut(r, rows, s, metas, threads);
  const double jobs =
      std::min(number(cut.group), number(r.batch) * number(heads) *
                                      number(ceil_div(r.q_len, s.query_tile)) *
                                      number(cut.parts));
  // A score and its block, in vectors that grow by doubling.
  const double waiting = jobs * (2 * 8 * number(cut.scores) +
                                 number(cut.queries) * sizeof(RoutingQuery));
  // By the query-tile rule a product has a single query, one document's.
  const double rows_at_once =
      s.rule == RouteRule::query_tile ? 1 : number(cut.queries);
  const double keys = number(ceil_div(r.kv_len, s.stride) + 2 * kPanelKeys);
  const double working =
      threads * (4 * rows_at_once * (keys + number(shape.dim)) +
                 2 * 8 * number(cut.scores));
  double pooled = level_bytes(rows, {s.compression, s.stride}, shape);
  if (s.hierarchical) {
    const int64_t group = s.block * s.meta_ratio;
    pooled += level_bytes(rows, {group, group}, shape);
  }
  const PickSizes sizes{r.batch, heads, r.q_len, s.top, s.block, r.kv_len};
  return pooled + waiting + working + pick_bytes(sizes, s.query_tile);
}

}  // namespace tessera::routing
