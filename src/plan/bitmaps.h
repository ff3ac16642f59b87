// plan/bitmaps.h: token masks of some batch rows, within a caller's budget.
#pragma once

#include <cstdint>
#include <string_view>

#include "tessera/layouts.h"

namespace tessera::plan {

// What the distinct masks may take in the form that the caller gives them.
struct BitmapBudget {
  int64_t bytes_per_tile = 1;
  int64_t max_bytes = kMaxLayoutBytes;
};

// make_bitmaps for batch rows [begin, end): `of_entry` begins with the first of
// their entries.
Result<Bitmaps> make_bitmaps_of(const Batch::State& batch, int64_t begin,
                                int64_t end, const BitmapBudget& budget,
                                std::string_view where);

}  // namespace tessera::plan
