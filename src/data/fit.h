// data/fit.h: fits parts of documents into rows, longest first. A part is an
// index into the list of lengths; only lengths matter.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tessera::data {

// Which parts lie in which row.
struct Fit {
  std::vector<int32_t> parts;  // row after row
  std::vector<int32_t> row_start{0};

  int64_t rows() const { return static_cast<int64_t>(row_start.size()) - 1; }
  std::span<const int32_t> row(int64_t r) const {
    const auto at = static_cast<size_t>(r);
    return {parts.data() + row_start[at],
            static_cast<size_t>(row_start[at + 1] - row_start[at])};
  }
};

// Lengths are 1 to `tokens`, and there are fewer than 2^31 parts. The memory of
// `fit` is reused.
using Lengths = std::span<const int32_t>;

// Each part, longest first, goes into the first row that has room for it.
void first_fit(Lengths lengths, int64_t tokens, Fit& fit);
// Each part, longest first, goes into the row where it leaves the least room.
void best_fit(Lengths lengths, int64_t tokens, Fit& fit);
// Few rows, whose causal attention costs alike: each long part, longest first,
// goes into the row with the least sum of squared lengths, of those with room;
// the short parts are placed as in best_fit.
void even_fit(Lengths lengths, int64_t tokens, Fit& fit);

}  // namespace tessera::data
