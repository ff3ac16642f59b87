// mask/runs.cc: finds runs in one pass over the ids; later work is per run.
#include "mask/runs.h"

#include <algorithm>

namespace tessera::mask {
namespace {

// Each id is compared with the previous one, a block at a time, so that long
// runs are read at memory speed.
constexpr int64_t kBlock = 64;

bool block_changes(const int32_t* ids) {
  uint32_t difference = 0;
  for (int64_t i = 0; i < kBlock; ++i) {
    difference |= static_cast<uint32_t>(ids[i] ^ ids[i - 1]);
  }
  return difference != 0;
}

}  // namespace

void find_runs(const int32_t* ids, int64_t n, IdRuns& runs) {
  runs.start.clear();
  runs.id.clear();
  runs.negative.clear();
  runs.distinct = true;
  auto push = [&](int64_t at) {
    if (!runs.id.empty() && ids[at] <= runs.id.back()) runs.distinct = false;
    if (ids[at] < 0) {
      runs.negative.push_back(static_cast<int32_t>(runs.id.size()));
    }
    runs.start.push_back(static_cast<int32_t>(at));
    runs.id.push_back(ids[at]);
  };
  push(0);
  int64_t i = 1;
  for (; i + kBlock <= n; i += kBlock) {
    if (!block_changes(ids + i)) continue;
    for (int64_t j = i; j < i + kBlock; ++j) {
      if (ids[j] != ids[j - 1]) push(j);
    }
  }
  for (; i < n; ++i) {
    if (ids[i] != ids[i - 1]) push(i);
  }
  runs.start.push_back(static_cast<int32_t>(n));
  runs.any_negative = !runs.negative.empty();
}

void link_runs(IdRuns& runs) {
  runs.order.clear();
  runs.place.clear();
  runs.before.clear();
  const int64_t n = runs.count();
  // A packed batch has rising ids, then padding. Adjacent runs differ, so a
  // sorted order is strictly rising.
  if (!runs.distinct && runs.negative.size() == 1 && runs.id.back() < 0) {
    runs.distinct = std::is_sorted(runs.id.begin(), runs.id.end() - 1);
  }
  if (runs.distinct) return;
  runs.order.resize(static_cast<size_t>(n));
  for (int64_t r = 0; r < n; ++r) runs.order[r] = static_cast<int32_t>(r);
  std::sort(runs.order.begin(), runs.order.end(), [&](int32_t l, int32_t r) {
    return runs.id[l] != runs.id[r] ? runs.id[l] < runs.id[r] : l < r;
  });
  runs.place.resize(static_cast<size_t>(n));
  runs.before.resize(static_cast<size_t>(n));
  for (int64_t p = 0; p < n; ++p) {
    const int32_t run = runs.order[p];
    runs.place[run] = static_cast<int32_t>(p);
    const bool same = p > 0 && runs.id[runs.order[p - 1]] == runs.id[run];
    runs.before[p] = 0;
    if (same) {
      const int32_t last = runs.order[p - 1];
      runs.before[p] =
          runs.before[p - 1] + runs.start[last + 1] - runs.start[last];
    }
  }
}

Interval places_of_id(const IdRuns& runs, int32_t id) {
  if (runs.distinct) {
    // Ids ascend except for padding at the end; callers never ask for padding.
    const auto end = runs.id.end() - (runs.id.back() < 0 ? 1 : 0);
    const auto it = std::lower_bound(runs.id.begin(), end, id);
    if (it == end || *it != id) return {};
    const int64_t r = it - runs.id.begin();
    return {r, r + 1};
  }
  const auto lo =
      std::partition_point(runs.order.begin(), runs.order.end(),
                           [&](int32_t run) { return runs.id[run] < id; });
  const auto hi = std::partition_point(
      lo, runs.order.end(), [&](int32_t run) { return runs.id[run] == id; });
  return {lo - runs.order.begin(), hi - runs.order.begin()};
}

Interval places_of_run(const IdRuns& runs, int64_t run) {
  if (runs.distinct) return {run, run + 1};
  return places_of_id(runs, runs.id[run]);
}

void count_columns(const IdRuns& runs, int64_t block, ColumnCounts& out) {
  const int64_t n = runs.count();
  out.first.clear();
  out.counts.clear();
  out.negative.assign(
      static_cast<size_t>((runs.start.back() + block - 1) / block), 0);
  for (int64_t p = 0; p < n; ++p) {
    const int32_t run = runs.order[p];
    const bool begins = p == 0 || runs.id[runs.order[p - 1]] != runs.id[run];
    out.first.push_back(static_cast<int32_t>(out.counts.size()));
    const auto of_id = static_cast<size_t>(out.first.back());
    const size_t least = begins ? of_id : of_id - 1;
    for (int64_t at = runs.start[run]; at < runs.start[run + 1];) {
      const auto column = static_cast<int32_t>(at / block);
      const int64_t end =
          std::min<int64_t>(runs.start[run + 1], (column + 1) * block);
      const auto keys = static_cast<int32_t>(end - at);
      if (runs.id[run] < 0) out.negative[column] += keys;
      if (out.counts.size() > least && out.counts.back().column == column) {
        out.counts.back().keys += keys;
      } else {
        out.counts.push_back({column, keys});
      }
      at = end;
    }
  }
  out.first.push_back(static_cast<int32_t>(out.counts.size()));
}

}  // namespace tessera::mask
