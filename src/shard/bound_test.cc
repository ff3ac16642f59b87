// shard/bound_test.cc: what must travel, beside every way to spread few rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "shard/problem.h"

namespace tessera::shard {
namespace {

// Rows that need some columns, at random; each costs what it needs.
Problem draw(std::mt19937_64& random, int64_t shards, int64_t rows,
             bool tasks) {
  Problem p;
  p.shards = shards;
  p.batch_rows = 1;
  p.units = p.column_units = rows;
  p.tied = true;
  p.tasks = tasks;
  p.start = {0};
  p.before = {0};
  const uint64_t some = 2 + random() % 4;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c <= r; ++c) {
      if (random() % some != 0) p.column.push_back(static_cast<uint32_t>(c));
    }
    p.start.push_back(static_cast<uint32_t>(p.column.size()));
    const auto steps = std::max<int64_t>(1, std::ssize(p.needs(r)));
    p.before.push_back(p.before.back() + steps);
  }
  return p;
}

struct Cost {
  int64_t needed = 0, work = 0, rows = 0;  // the most of one shard
};

// Of rows computed by `homes`, columns lying with their rows or by `owners`.
Cost cost_of(const Problem& p, const Homes& homes, const Homes& owners) {
  Cost out;
  for (int32_t s = 0; s < p.shards; ++s) {
    int64_t work = 0, rows = 0;
    std::vector<bool> needs(static_cast<size_t>(p.columns()), false);
    for (int64_t r = 0; r < p.rows(); ++r) {
      if (homes[static_cast<size_t>(r)] != s) continue;
      work += p.work(r, r + 1);
      ++rows;
      for (const uint32_t c : p.needs(r)) needs[c] = true;
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
    const Problem p = draw(random, shards, rows, round % 3 == 0);
    const double work_cap =
        p.mean_work() * (1 + static_cast<double>(random() % 80) / 100);
    const auto row_cap = static_cast<int64_t>(rows / shards + 1 + random() % 3);
    const int64_t bound = least_columns(p, work_cap, row_cap);
    const Homes owners = contiguous_homes(p);
    int64_t best = -1;
    Homes homes(static_cast<size_t>(rows), 0);
    for (bool more = true; more;) {
      const Cost cost = cost_of(p, homes, p.tasks ? owners : homes);
      if (static_cast<double>(cost.work) <= work_cap &&
          (p.tasks || cost.rows <= row_cap) &&
          (best < 0 || cost.needed < best)) {
        best = cost.needed;
      }
      size_t at = 0;  // the next in a numeral of base `shards`
      while (at < homes.size() && ++homes[at] == p.shards) homes[at++] = 0;
      more = at < homes.size();
    }
    if (best < 0) continue;  // none is so even
    EXPECT_LE(bound, best) << round;
    reached += bound == best ? 1 : 0;
    more_than_none += bound > 0 ? 1 : 0;
  }
  EXPECT_GT(reached, 5);
  EXPECT_GT(more_than_none, 50);
}

// A document in one tile row of columns: what all rows need goes to each.
TEST(LeastColumns, WhatAllNeedGoesToAll) {
  Problem p;
  p.shards = 4;
  p.batch_rows = 1;
  p.units = p.column_units = 8;
  p.tied = true;
  p.start = {0};
  p.before = {0};
  for (int64_t r = 0; r < 8; ++r) {
    p.column.push_back(0);
    p.start.push_back(static_cast<uint32_t>(p.column.size()));
    p.before.push_back(p.before.back() + 1);
  }
  EXPECT_EQ(least_columns(p, 2, 2), 3);
  EXPECT_EQ(least_columns(p, 4, 8), 1);
  EXPECT_EQ(least_columns(p, 8, 8), 0);
  EXPECT_EQ(least_columns(p, 8, 2), 3);  // by tokens alone
  p.tasks = true;
  EXPECT_EQ(least_columns(p, 8, 2), 0);
  // A row above the limit: no way at all, and no more than there are shards.
  EXPECT_EQ(least_columns(p, 0.5, 2), 3);
}

}  // namespace
}  // namespace tessera::shard
