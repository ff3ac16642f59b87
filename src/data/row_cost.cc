// data/row_cost.cc: the cost of attention over a row of documents.
#include "data/row_cost.h"

#include <algorithm>

#include "base/fail.h"
#include "base/integers.h"
#include "plan/make_plan.h"

namespace tessera {

namespace data {
namespace {

// Tiles of `causal & documents` over consecutive documents. A row of tiles
// spans from the tile where the document of its first token begins to its own
// tile, since all tiles between hold keys of that document.
int64_t causal_document_tiles(std::span<const int32_t> lengths, int64_t tile) {
  int64_t tiles = 0;
  int64_t begin = 0;
  for (const int32_t length : lengths) {
    const int64_t end = begin + length;
    const int64_t first = ceil_div(begin, tile);
    const int64_t rows = ceil_div(end, tile) - first;
    tiles += rows * (first - begin / tile + 1) + rows * (rows - 1) / 2;
    begin = end;
  }
  return tiles;
}

}  // namespace

Result<Mask> usual_mask() { return make_mask(causal() & documents()); }

Result<RowCost> RowCost::make(const PackOptions& options) {
  for (const int64_t n : {options.tile.q, options.tile.kv}) {
    if (n >= kMinBlock && n <= kMaxBlock) continue;
    return invalid("pack", "a tile must be {} to {} tokens, found {} for it",
                   kMinBlock, kMaxBlock, n);
  }
  RowCost cost;
  auto usual = usual_mask();
  if (!usual) return usual.error();
  cost.mask_ = options.mask ? *options.mask : *usual;
  cost.tokens_ = options.tokens;
  cost.tile_ = options.tile;
  cost.closed_form_ = cost.mask_ == *usual && options.tile.q == options.tile.kv;
  // The planner checks the rest of the options here, before any work.
  const std::vector<int32_t> one{1}, start{0, 1};
  if (auto tried = cost.planned(one, start); !tried) return tried.error();
  return cost;
}

Result<std::vector<int64_t>> RowCost::rows(
    std::span<const int32_t> lengths,
    std::span<const int32_t> row_start) const {
  if (!closed_form_) return planned(lengths, row_start);
  std::vector<int64_t> costs(row_start.size() - 1);
  for (size_t r = 0; r < costs.size(); ++r) {
    const auto begin = static_cast<size_t>(row_start[r]);
    costs[r] = causal_document_tiles(
        lengths.subspan(begin, static_cast<size_t>(row_start[r + 1]) - begin),
        tile_.q);
  }
  return costs;
}

Result<std::vector<int64_t>> RowCost::planned(
    std::span<const int32_t> lengths,
    std::span<const int32_t> row_start) const {
  const auto rows = static_cast<int64_t>(row_start.size()) - 1;
  const int64_t most = std::max<int64_t>(1, kPlannedTokens / tokens_);
  std::vector<int64_t> costs;
  costs.reserve(static_cast<size_t>(rows));
  std::vector<int32_t> ids, counts;
  for (int64_t first = 0; first < rows; first += most) {
    const int64_t n = std::min(most, rows - first);
    ids.assign(static_cast<size_t>(n * tokens_), -1);
    counts.clear();
    for (int64_t r = 0; r < n; ++r) {
      const auto row = static_cast<size_t>(first + r);
      auto at = ids.begin() + r * tokens_;
      const auto begin = at;
      int32_t id = 0;
      for (int32_t p = row_start[row]; p < row_start[row + 1]; ++p) {
        at = std::fill_n(at, lengths[static_cast<size_t>(p)], id++);
      }
      counts.push_back(static_cast<int32_t>(at - begin));
    }
    Request request;
    request.masks = {mask_};
    request.batch = n;
    request.q_len = request.kv_len = tokens_;
    request.tile = tile_;
    Facts facts;
    facts.doc_ids = Ints(ids);
    facts.valid_token_counts = Ints(counts);
    auto made = plan::make_plan(request, facts);
    if (!made) return made.error();
    const Worklist& w = made->forward;
    for (int64_t r = 0; r < n; ++r) {
      const auto at = static_cast<size_t>(r * w.rows);
      costs.push_back(w.row_start[at + static_cast<size_t>(w.rows)] -
                      w.row_start[at]);
    }
  }
  return costs;
}

}  // namespace data

Result<std::vector<int64_t>> row_costs(const Packing& packing,
                                       const PackOptions& options) {
  auto cost = data::RowCost::make(options);
  if (!cost) return cost.error();
  std::vector<int64_t> all;
  all.reserve(static_cast<size_t>(packing.rows()));
  std::vector<int32_t> lengths, start;
  constexpr int64_t kRows = 4096;
  for (int64_t first = 0; first < packing.rows(); first += kRows) {
    lengths.clear();
    start.assign(1, 0);
    const int64_t end = std::min(packing.rows(), first + kRows);
    for (int64_t r = first; r < end; ++r) {
      for (const DocumentPart& p : packing.row(r)) lengths.push_back(p.length);
      start.push_back(static_cast<int32_t>(lengths.size()));
    }
    auto some = cost->rows(lengths, start);
    if (!some) return some.error();
    all.insert(all.end(), some->begin(), some->end());
  }
  return all;
}

}  // namespace tessera
