// shard/bound.cc: a lower bound of traffic, column by column.
//
// The work of the rows that need a column takes a minimum number of shards,
// each within its limits. One of them may own the column; the others must
// receive it. Each column is counted alone, so the sum is a lower bound: no
// single assignment need reach it for all columns.
#include "shard/bound.h"

#include <algorithm>
#include <cmath>

namespace tessera::shard {

Demand demand_of(const Plan& plan, const TileWork& work, const Group& group) {
  const Owners& o = *group.owners;
  const Worklist& w = plan.forward;
  Demand out;
  out.columns = o.batch_rows * o.columns;
  std::vector<int64_t> seen(static_cast<size_t>(out.columns), -1);
  out.column.reserve(w.entries.size());
  for (int64_t b = 0; b < o.batch_rows; ++b) {
    for (int64_t r = 0; r < o.rows; ++r) {
      int64_t sum = 0;
      for (int64_t h = 0; h < plan.heads; ++h) {
        const auto row = w.row(plan.list(o.first_batch_row + b, h), r);
        if (row.empty()) sum += work.partial;
        for (const Entry& e : row) sum += work.of(e.tile_class());
        if (h < group.first_list || h >= group.first_list + group.lists) {
          continue;
        }
        for (const Entry& e : row) {
          const auto c = static_cast<size_t>(b * o.columns + e.column());
          const int64_t at = std::ssize(out.work);
          if (seen[c] == at) continue;
          seen[c] = at;
          out.column.push_back(static_cast<uint32_t>(c));
        }
      }
      out.work.push_back(sum);
      out.start.push_back(static_cast<uint32_t>(out.column.size()));
    }
  }
  return out;
}

Limits limits_of(const Demand& d, const Group& group,
                 const ShardOptions& options, int64_t shards) {
  const auto n = static_cast<size_t>(shards);
  std::vector<double> work(n, 0), rows(n, 0);
  double all = 0;
  for (size_t r = 0; r < d.work.size(); ++r) {
    const auto s = static_cast<size_t>(group.owners->computes[r]);
    work[s] += static_cast<double>(d.work[r]);
    rows[s] += 1;
    all += static_cast<double>(d.work[r]);
  }
  const auto mean = [&](double sum) {
    return sum / static_cast<double>(shards);
  };
  Limits out;
  out.work = std::max(options.evenness.work * mean(all),
                      *std::ranges::max_element(work));
  if (options.balance == Balance::tasks) return out;
  out.rows = std::max(
      options.evenness.tokens * mean(static_cast<double>(d.work.size())),
      *std::ranges::max_element(rows));
  return out;
}

int64_t least_columns(const Demand& d, const Limits& limits, int64_t shards) {
  const auto columns = static_cast<size_t>(d.columns);
  std::vector<int64_t> work(columns, 0), rows(columns, 0);
  for (size_t r = 0; r < d.work.size(); ++r) {
    for (uint32_t i = d.start[r]; i < d.start[r + 1]; ++i) {
      work[d.column[i]] += d.work[r];
      ++rows[d.column[i]];
    }
  }
  // A limit that was rounded down must not add a part to a whole number.
  constexpr double kRounding = 1e-9;
  const auto parts = [&](int64_t all, double limit) {
    const double n = static_cast<double>(all) / limit * (1 - kRounding);
    return n > static_cast<double>(shards) ? shards
                                           : static_cast<int64_t>(std::ceil(n));
  };
  int64_t out = 0;
  for (size_t c = 0; c < columns; ++c) {
    if (rows[c] == 0) continue;
    const int64_t most =
        std::max(parts(work[c], limits.work), parts(rows[c], limits.rows));
    out += std::min(most, rows[c]) - 1;
  }
  return out;
}

}  // namespace tessera::shard
