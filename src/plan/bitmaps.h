// plan/bitmaps.h: token masks of a range of batch rows, within a byte budget.
#pragma once

#include <cstdint>
#include <string_view>

#include "tessera/layouts.h"

namespace tessera::plan {

// The memory limit for the distinct masks, in the form the caller gives them.
struct BitmapBudget {
  int64_t bytes_per_tile = 1;
  int64_t max_bytes = kMaxLayoutBytes;
};

// make_bitmaps for batch rows [begin, end). `of_entry` starts at the first
// entry of row `begin`.
Result<Bitmaps> make_bitmaps_of(const Batch::State& batch, int64_t begin,
                                int64_t end, const BitmapBudget& budget,
                                std::string_view where);

}  // namespace tessera::plan
