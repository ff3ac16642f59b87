// data/row_stats.cc: statistics of rows.
#include "data/row_stats.h"

#include <algorithm>

#include "data/row_cost.h"
#include "plan/make_plan.h"

namespace tessera::data {
namespace {

void count_tiles(const Plan& plan, int64_t batch_row, RowStats& into) {
  const Worklist& w = plan.forward;
  const auto begin = static_cast<size_t>(batch_row * w.rows);
  const auto first = static_cast<size_t>(w.row_start[begin]);
  const auto last =
      static_cast<size_t>(w.row_start[begin + static_cast<size_t>(w.rows)]);
  for (size_t i = first; i < last; ++i) {
    const bool full = w.entries[i].tile_class() == TileClass::full;
    ++(full ? into.full : into.partial);
  }
  into.tiles += w.rows * w.columns;
  ++into.cost[static_cast<int64_t>(last - first)];
}

}  // namespace

Result<void> add_row_stats(const Rows& rows, const PackOptions& options,
                           RowStats& into) {
  auto usual = usual_mask();
  if (!usual) return usual.error();
  Request request;
  request.masks = {options.mask ? *options.mask : *usual};
  request.q_len = request.kv_len = rows.shape.tokens;
  request.tile = options.tile;
  into.tokens = rows.shape.tokens;
  const Ints ids = rows.column(RowColumn::doc_ids);
  const Ints counts = rows.column(RowColumn::valid_token_count);
  const int64_t most = std::max<int64_t>(1, kPlannedTokens / rows.shape.tokens);
  for (int64_t first = 0; first < rows.rows; first += most) {
    const int64_t n = std::min(most, rows.rows - first);
    request.batch = n;
    const auto part = [&](Ints all, int64_t width) {
      return all.subspan(static_cast<size_t>(first * width),
                         static_cast<size_t>(n * width));
    };
    Facts facts;
    facts.doc_ids = part(ids, rows.shape.tokens);
    facts.valid_token_counts = part(counts, 1);
    auto made = plan::make_plan(request, facts);
    if (!made) return made.error();
    for (int64_t r = 0; r < n; ++r) {
      count_tiles(*made, r, into);
      ++into.filled[rows.row(RowColumn::valid_token_count, first + r)[0]];
      ++into.documents[rows.row(RowColumn::num_docs, first + r)[0]];
    }
  }
  into.rows += rows.rows;
  return {};
}

}  // namespace tessera::data
