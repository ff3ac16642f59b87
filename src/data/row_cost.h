// data/row_cost.h: what attention over a row of documents costs: the active
// tiles of a mask, as the planner counts them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/data.h"

namespace tessera::data {

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
