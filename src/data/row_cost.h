// data/row_cost.h: the cost of attention over a row of documents: the number of
// active tiles of a mask, as the planner counts them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/data.h"

namespace tessera::data {

// The mask over packed rows if none is given: causal & documents.
Result<Mask> usual_mask();

// Tokens that are planned in one call.
inline constexpr int64_t kPlannedTokens = int64_t{1} << 20;

// Counts tiles of the mask of `options` for rows of documents by their lengths.
class RowCost {
 public:
  static Result<RowCost> make(const PackOptions& options);

  // The cost of each row; row r has lengths [row_start[r], row_start[r + 1]).
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
