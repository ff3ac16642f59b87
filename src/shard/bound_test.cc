// shard/bound_test.cc: the lower bound against every assignment of a few rows.
#include "shard/bound.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace tessera::shard {
namespace {

// Rows that need some columns up to their own; work is their number.
Demand draw(std::mt19937_64& random, int64_t rows) {
  Demand d;
  d.columns = rows;
  const uint64_t some = 2 + random() % 4;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c <= r; ++c) {
      if (random() % some != 0) d.column.push_back(static_cast<uint32_t>(c));
    }
    const auto needs = static_cast<int64_t>(d.column.size() - d.start.back());
    d.start.push_back(static_cast<uint32_t>(d.column.size()));
    d.work.push_back(std::max<int64_t>(1, needs));
  }
  return d;
}

struct Cost {
  int64_t needed = 0, work = 0, rows = 0;  // work, rows: maximum of a shard
};

// The cost of computing rows by `row_shards` with columns owned by `owners`.
Cost cost_of(const Demand& d, int64_t shards, const RowShards& row_shards,
             const RowShards& owners) {
  Cost out;
  for (int32_t s = 0; s < shards; ++s) {
    int64_t work = 0, rows = 0;
    std::vector<bool> needs(static_cast<size_t>(d.columns), false);
    for (size_t r = 0; r < row_shards.size(); ++r) {
      if (row_shards[r] != s) continue;
      work += d.work[r];
      ++rows;
      for (uint32_t i = d.start[r]; i < d.start[r + 1]; ++i) {
        needs[d.column[i]] = true;
      }
    }
    for (size_t c = 0; c < needs.size(); ++c) {
      out.needed += needs[c] && owners[c] != s ? 1 : 0;
    }
    out.work = std::max(out.work, work);
    out.rows = std::max(out.rows, rows);
  }
  return out;
}

TEST(LeastColumns, NoWayWithinTheLimitsNeedsLess) {
  std::mt19937_64 random(5);
  int reached = 0, more_than_none = 0;
  for (int round = 0; round < 150; ++round) {
    const auto shards = static_cast<int64_t>(2 + random() % 2);
    const int64_t rows = shards == 2 ? 9 : 7;
    const bool tasks = round % 3 == 0;
    const Demand d = draw(random, rows);
    int64_t all = 0;
    for (const int64_t w : d.work) all += w;
    Limits limits;
    limits.work = static_cast<double>(all) / static_cast<double>(shards) *
                  (1 + static_cast<double>(random() % 80) / 100);
    if (!tasks) {
      limits.rows = static_cast<double>(rows / shards + 1 + random() % 3);
    }
    const int64_t bound = least_columns(d, limits, shards);
    RowShards owners;
    for (int64_t r = 0; r < rows; ++r) {
      owners.push_back(static_cast<int32_t>(r * shards / rows));
    }
    int64_t best = -1;
    RowShards row_shards(static_cast<size_t>(rows), 0);
    for (bool more = true; more;) {
      const Cost cost =
          cost_of(d, shards, row_shards, tasks ? owners : row_shards);
      if (static_cast<double>(cost.work) <= limits.work &&
          static_cast<double>(cost.rows) <= limits.rows &&
          (best < 0 || cost.needed < best)) {
        best = cost.needed;
      }
      size_t at = 0;  // next digit of a number in base `shards`
      while (at < row_shards.size() && ++row_shards[at] == shards)
        row_shards[at++] = 0;
      more = at < row_shards.size();
    }
    if (best < 0) continue;  // no assignment is within the limits
    EXPECT_LE(bound, best) << round;
    reached += bound == best ? 1 : 0;
    more_than_none += bound > 0 ? 1 : 0;
  }
  EXPECT_GT(reached, 5);
  EXPECT_GT(more_than_none, 50);
}

TEST(LeastColumns, WhatAllNeedGoesToAll) {
  Demand d;
  d.columns = 8;
  for (int64_t r = 0; r < 8; ++r) {
    d.column.push_back(0);
    d.start.push_back(static_cast<uint32_t>(d.column.size()));
    d.work.push_back(1);
  }
  EXPECT_EQ(least_columns(d, {2, 2}, 4), 3);
  EXPECT_EQ(least_columns(d, {4, 8}, 4), 1);
  EXPECT_EQ(least_columns(d, {8, 8}, 4), 0);
  EXPECT_EQ(least_columns(d, {8, 2}, 4), 3);  // limited by rows only
  EXPECT_EQ(least_columns(d, {8}, 4), 0);
  // A row above the limit: no assignment exists, and all shards are used.
  EXPECT_EQ(least_columns(d, {0.5, 2}, 4), 3);
}

}  // namespace
}  // namespace tessera::shard
