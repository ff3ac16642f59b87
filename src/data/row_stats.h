// data/row_stats.h: statistics of rows: tokens, documents and attention cost.
#pragma once

#include <cstdint>
#include <map>

#include "tessera/data.h"

namespace tessera::data {

struct RowStats {
  int64_t tokens = 0;  // of a row
  int64_t rows = 0;
  std::map<int64_t, int64_t> filled, documents, cost;  // value -> rows
  int64_t tiles = 0;                                   // of all rows, of which:
  int64_t partial = 0, full = 0;

  bool operator==(const RowStats&) const = default;
};

// Adds the rows' statistics. Mask and tile are those of `options`.
Result<void> add_row_stats(const Rows& rows, const PackOptions& options,
                           RowStats& into);

}  // namespace tessera::data
