// data/row_cost.h: what attention over a row of documents costs: the active
// tiles of a mask, as the planner counts them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/data.h"

namespace tessera::data {

// What attention over packed rows is where nobody names a mask: causal &
// documents.
Result<Mask> usual_mask();

// Rows that are planned at once: about a million tokens.
inline constexpr int64_t kPlannedTokens = int64_t{1} << 20;

// Tiles of the mask of `options`, for rows whose documents have these lengths.
class RowCost {
 public:
  static Result<RowCost> make(const PackOptions& options);

  // Of rows [row_start[r], row_start[r + 1]) of lengths.
  Result<std::vector<int64_t>> rows(std::span<const int32_t> lengths,
                                    std::span<const int32_t> row_start) const;

 private:
  Result<std::vector<int64_t>> planned(
      std::span<const int32_t> lengths,
      std::span<const int32_t> row_start) const;

  Mask mask_;
  int64_t tokens_ = 0;
  Tile tile_;
  bool closed_form_ = false;
};

}  // namespace tessera::data
