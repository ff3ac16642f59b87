// shard/bound.cc: what must travel however rows are spread.
//
// The rows that need a column are computed by as many shards as their work
// takes, each within its limit. One of these may have the column: the others
// are sent it. Columns are counted apart, so that no way to spread rows that
// is as even needs less; one that needs no more may not exist.
#include <algorithm>
#include <cmath>

#include "shard/problem.h"

namespace tessera::shard {

int64_t least_columns(const Problem& p, double work_cap, int64_t row_cap) {
  const auto columns = static_cast<size_t>(p.columns());
  std::vector<int64_t> work(columns, 0), rows(columns, 0);
  for (int64_t r = 0; r < p.rows(); ++r) {
    for (const uint32_t c : p.needs(r)) {
      work[c] += p.work(r, r + 1);
      ++rows[c];
    }
  }
  // What rounding of the limit makes of a whole number is that number.
  constexpr double kRounding = 1e-9;
  const auto parts = [](int64_t all, double limit) {
    return static_cast<int64_t>(
        std::ceil(static_cast<double>(all) / limit * (1 - kRounding)));
  };
  int64_t out = 0;
  for (size_t c = 0; c < columns; ++c) {
    if (rows[c] == 0) continue;
    int64_t shards = parts(work[c], work_cap);
    // A task may be computed by who has no more of the tokens.
    if (!p.tasks) {
      shards = std::max(shards, parts(rows[c], static_cast<double>(row_cap)));
    }
    out += std::min({shards, rows[c], p.shards}) - 1;
  }
  return out;
}

}  // namespace tessera::shard
