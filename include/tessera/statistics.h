// tessera/statistics.h: what a plan costs and what it saves.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "tessera/batch.h"

namespace tessera {

struct Statistics {
  int64_t tiles_total = 0;
  int64_t tiles_active = 0;
  int64_t tiles_partial = 0;
  int64_t tiles_full = 0;
  int64_t pairs_total = 0;   // q_len * kv_len over all lists
  int64_t pairs_needed = 0;  // legal pairs
  int64_t pairs_paid = 0;    // pairs of real tokens in active tiles
  // Active blocks and their real pairs with the logical block in place of the
  // tile; equal to tiles_active and pairs_paid where the request names none.
  int64_t logical_active = 0;
  int64_t logical_paid = 0;
  double density = 0;      // active tiles / all tiles
  int64_t grid_width = 0;  // widest forward row
  int64_t grid_width_transposed = 0;
  int64_t empty_rows = 0;     // forward rows without a tile, over all lists
  int64_t empty_columns = 0;  // the same of the transposed rows
  std::map<int64_t, int64_t> row_histogram;  // tiles in a forward row -> rows

  bool operator==(const Statistics&) const = default;
};

// Where the logical block differs from the tile, it plans again, row by row,
// with that block.
Result<Statistics> make_statistics(const Batch& batch);

}  // namespace tessera
