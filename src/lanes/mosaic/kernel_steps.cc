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
  std::vector<bool> out(static_cast<size_t>(ceil_div(bound.kv_len, tile)));
  for (int64_t key = 0; key < bound.kv_len; ++key) {
    if (is_vetoed(row, key)) out[static_cast<size_t>(key / tile)] = true;
  }
  if (bound.kv_len % tile != 0) out.back() = true;
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

}  // namespace

Result<Steps> kernel_steps(const mask::Bound& bound, const Plan& plan,
                           const MosaicKernel& kernel) {
  auto steps =
      pack_steps(plan, kernel.call.backward, kernel.options.tiles_per_pass);
  if (!steps || kernel.call.backward) return steps;
  const auto lists = steps->range.size() - 1;
  for (size_t list = 0; list < lists; ++list) {
    const size_t b = list / static_cast<size_t>(plan.heads);
    const std::vector<bool> vetoed = vetoed_tiles(bound, bound.rows[b]);
    size_t begin = steps->range[list];
    for (size_t at = begin; at < steps->range[list + 1]; ++at) {
      if (!steps->steps[at].last()) continue;
      const auto row = std::span(steps->steps).subspan(begin, at + 1 - begin);
      const auto live = std::ranges::count_if(
          row, [](Step s) { return s.step_class() != kFiller; });
      // An empty row has one step all the same, which must be masked.
      arrange(row, std::max<size_t>(static_cast<size_t>(live), 1), vetoed);
      begin = at + 1;
    }
  }
  return steps;
}

}  // namespace tessera::mosaic
