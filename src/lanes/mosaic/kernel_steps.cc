// lanes/mosaic/kernel_steps.cc: row by row.
#include "lanes/mosaic/kernel_steps.h"

#include <algorithm>
#include <span>
#include <vector>

#include "base/integers.h"
#include "plan/step_word.h"

namespace tessera::mosaic {
namespace {

constexpr uint32_t kFiller = 0;
constexpr uint32_t kMasked = 1;
constexpr uint32_t kFull = 2;
constexpr uint32_t kToClean = 3;

// Whether a tile of keys has one that a veto takes, or crosses the last key.
std::vector<bool> vetoed_tiles(const mask::Bound& bound,
                               const mask::BoundRow& row) {
  const int64_t tile = bound.tile.kv;
  std::vector<bool> out;
  for (int64_t begin = 0; begin < bound.kv_len; begin += tile) {
    const int64_t end = begin + tile;
    int32_t all = 0;  // negative where one of them is
    if (row.ids && end <= bound.kv_len) {
      for (int64_t k = begin; k < end; ++k) all |= row.ids[k];
    }
    out.push_back(end > std::min(row.valid, bound.kv_len) || all < 0);
  }
  return out;
}

// The tiles of one row, `live` of them, and what fills its last pass up.
void arrange(std::span<Step> row, size_t live,
             const std::vector<bool>& vetoed) {
  struct Tile {
    int64_t column;
    uint32_t step_class;
  };
  std::vector<Tile> tiles;
  for (const Step& s : row.first(live)) {
    const int64_t column = s.column();
    const uint32_t masked =
        vetoed[static_cast<size_t>(column)] ? kToClean : kMasked;
    tiles.push_back({column, s.step_class() == kFull ? kFull : masked});
  }
  std::ranges::stable_sort(tiles, {}, [](const Tile& t) {
    return t.step_class == kFull ? 0U : t.step_class;
  });
  tiles.resize(row.size(), {tiles.front().column, kFiller});
  const int64_t number = row.front().row();
  for (size_t i = 0; i < row.size(); ++i) {
    row[i] = plan::step_of(number, tiles[i].column, tiles[i].step_class, i == 0,
                           i + 1 == row.size());
  }
}

// The rows of one list.
void arrange_list(Steps& steps, size_t list, const std::vector<bool>& vetoed) {
  size_t begin = steps.range[list];
  for (size_t at = begin; at < steps.range[list + 1]; ++at) {
    if (!steps.steps[at].last()) continue;
    const auto row = std::span(steps.steps).subspan(begin, at + 1 - begin);
    const auto live = std::ranges::count_if(
        row, [](Step s) { return s.step_class() != kFiller; });
    // An empty row has one step all the same, which must be masked.
    arrange(row, std::max<size_t>(static_cast<size_t>(live), 1), vetoed);
    begin = at + 1;
  }
}

// Rows of a shard's list, each filled up to whole passes.
class RowWriter {
 public:
  RowWriter(int64_t tiles_per_pass, Steps& out)
      : tiles_per_pass_(tiles_per_pass), out_(out) {}

  void add(std::span<const Step> row) {
    const auto live = static_cast<int64_t>(row.size());
    const int64_t filled = round_up(live, tiles_per_pass_);
    for (int64_t i = 0; i < filled; ++i) {
      const Step& s = row[static_cast<size_t>(std::min(i, live - 1))];
      out_.steps.push_back(plan::step_of(s.row(), s.column(),
                                         i < live ? s.step_class() : kFiller,
                                         i == 0, i + 1 == filled));
    }
  }
  void add_empty(int64_t row) {
    const Step step = plan::step_of(row, 0, plan::kStepEmpty, true, true);
    add({&step, 1});
  }

 private:
  int64_t tiles_per_pass_;
  Steps& out_;
};

// Of local columns.
std::vector<bool> vetoed_columns(const mask::Bound& bound, const Shard& shard) {
  std::vector<std::vector<bool>> of_row;
  for (const mask::BoundRow& row : bound.rows) {
    of_row.push_back(vetoed_tiles(bound, row));
  }
  std::vector<bool> out;
  for (const TileAt& t : shard.columns) {
    out.push_back(
        t.tile < 0 ||
        of_row[static_cast<size_t>(t.batch_row)][static_cast<size_t>(t.tile)]);
  }
  return out;
}

}  // namespace

Result<Steps> kernel_steps(const mask::Bound& bound, const Plan& plan,
                           const MosaicKernel& kernel) {
  auto steps =
      pack_steps(plan, kernel.call.backward, kernel.options.tiles_per_pass);
  if (!steps || kernel.call.backward) return steps;
  for (int64_t b = 0; b < plan.batch; ++b) {
    const std::vector<bool> vetoed =
        vetoed_tiles(bound, bound.rows[static_cast<size_t>(b)]);
    for (int64_t h = 0; h < plan.heads; ++h) {
      arrange_list(*steps, static_cast<size_t>(plan.list(b, h)), vetoed);
    }
  }
  return steps;
}

Result<Steps> shard_steps(const Batch& batch, const mask::Bound& bound,
                          const Shards& shards, size_t index,
                          const MosaicKernel& kernel) {
  const bool backward = kernel.call.backward;
  auto packed =
      pack_shard(batch, shards, static_cast<int64_t>(index), backward);
  if (!packed) return packed;
  Steps out;
  out.tiles_per_pass = kernel.options.tiles_per_pass;
  out.range.push_back(0);
  RowWriter rows(out.tiles_per_pass, out);
  for (size_t list = 0; list + 1 < packed->range.size(); ++list) {
    // The backward kernel takes columns from 0, and leaves none out.
    int64_t due = 0;
    size_t begin = packed->range[list];
    for (size_t at = begin; at < packed->range[list + 1]; ++at) {
      const Step& s = packed->steps[at];
      if (!s.last()) continue;
      for (; backward && due < s.row(); ++due) rows.add_empty(due);
      rows.add(std::span(packed->steps).subspan(begin, at + 1 - begin));
      due = s.row() + 1;
      begin = at + 1;
    }
    // Its gradients of queries go out even where it has no key.
    if (backward && due == 0) rows.add_empty(0);
    out.range.push_back(static_cast<uint32_t>(out.steps.size()));
  }
  if (backward) return out;
  const std::vector<bool> vetoed = vetoed_columns(bound, shards.shards[index]);
  for (size_t list = 0; list + 1 < out.range.size(); ++list) {
    arrange_list(out, list, vetoed);
  }
  return out;
}

}  // namespace tessera::mosaic
