// data/fit.h: fits parts of documents into rows, longest first. A part is an
// index into the list of lengths; only lengths matter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace tessera::data {

// An array that is not cleared; each number is written before it is read.
using Unset = std::unique_ptr<int32_t[]>;
inline Unset unset(size_t n) {
  return std::make_unique_for_overwrite<int32_t[]>(n);
}

// Which row each part lies in: part[i] in row_of[i]. A row has its parts in the
// order from the last i to the first.
struct Fit {
  explicit Fit(size_t count)
      : parts(count), part(unset(count)), row_of(unset(count)) {}

  size_t parts;
  Unset part, row_of;
  int32_t rows = 0;
};

// Where each row begins if rows lie one after another in this order.
std::vector<int32_t> row_starts(const Fit& fit, std::span<const int32_t> order);

// Calls put(place, part) for each part. `next` has where each row begins, and
// gets where it ends.
template <class Put>
void place_parts(const Fit& fit, std::span<int32_t> next, const Put& put) {
  for (size_t i = fit.parts; i-- > 0;) {
    put(static_cast<size_t>(next[static_cast<size_t>(fit.row_of[i])]++),
        static_cast<size_t>(fit.part[i]));
  }
}

// Lengths are 1 to `tokens`, and there are fewer than 2^31 parts.
using Lengths = std::span<const int32_t>;

// Each part, longest first, goes into the first row that has room for it.
Fit first_fit(Lengths lengths, int64_t tokens);
// Each part, longest first, goes into the row where it leaves the least room.
Fit best_fit(Lengths lengths, int64_t tokens);
// Few rows, whose causal attention costs alike: each long part, longest first,
// goes into the row with the least sum of squared lengths, of those with room;
// the short parts are placed as in best_fit.
Fit even_fit(Lengths lengths, int64_t tokens);

}  // namespace tessera::data
