// plan/step_word.h: packs one step, or the steps of a row of tiles.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "base/integers.h"
#include "tessera/layouts.h"

namespace tessera::plan {

// Step classes other than partial. A full step may cross q_len or kv_len.
inline constexpr uint32_t kStepEmpty = 0;
inline constexpr uint32_t kStepFull = 2;
inline constexpr uint32_t kStepFullCrossing = 3;

inline Step step_of(int64_t row, int64_t column, uint32_t step_class,
                    bool first, bool last) {
  return {static_cast<uint32_t>(row) << 18 |
          static_cast<uint32_t>(column) << 4 | step_class << 2 |
          static_cast<uint32_t>(first) << 1 | static_cast<uint32_t>(last)};
}

// Appends the steps of one row: at least one, padded with empty steps to whole
// passes. `is_whole(column)`: that tile lies within q_len and kv_len.
template <class IsWhole>
void append_row(int64_t row, std::span<const Entry> tiles,
                int64_t tiles_per_pass, const IsWhole& is_whole,
                std::vector<Step>& out) {
  const auto count = static_cast<int64_t>(tiles.size());
  const int64_t filled = round_up(std::max<int64_t>(count, 1), tiles_per_pass);
  for (int64_t i = 0; i < filled; ++i) {
    int64_t column = count > 0 ? tiles.back().column() : 0;
    uint32_t step_class = kStepEmpty;
    if (i < count) {
      const Entry& tile = tiles[static_cast<size_t>(i)];
      column = tile.column();
      step_class = static_cast<uint32_t>(tile.tile_class());
      if (step_class == kStepFull && !is_whole(column)) {
        step_class = kStepFullCrossing;
      }
    }
    out.push_back(step_of(row, column, step_class, i == 0, i + 1 == filled));
  }
}

}  // namespace tessera::plan
