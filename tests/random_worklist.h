// tests/random_worklist.h: random worklists, which need not come from a mask,
// for tests of layouts with any tiles.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>

#include "tessera/plan.h"
#include "tests/random_case.h"

namespace tessera::testing {

inline int64_t random_int(std::mt19937_64& random, int64_t from, int64_t to) {
  return std::uniform_int_distribution<int64_t>(from, to)(random);
}

// Rows are empty, dense or anything between.
inline Worklist random_worklist(std::mt19937_64& random, int64_t lists,
                                int64_t rows, int64_t columns) {
  Worklist w;
  w.lists = lists;
  w.rows = rows;
  w.columns = columns;
  w.row_start.push_back(0);
  for (int64_t r = 0; r < lists * rows; ++r) {
    const int64_t percent = std::max<int64_t>(0, random_int(random, -60, 130));
    for (int64_t c = 0; c < columns; ++c) {
      if (random_int(random, 0, 99) >= percent) continue;
      w.entries.push_back(Entry::of(c, random_int(random, 0, 1) == 0
                                           ? TileClass::partial
                                           : TileClass::full));
    }
    w.row_start.push_back(static_cast<uint32_t>(w.entries.size()));
  }
  return w;
}

// A plan of random tiles. Half of the lengths are not a whole number of tiles.
// Its legal pairs are only plausible numbers.
inline Plan random_plan(std::mt19937_64& random) {
  Plan p;
  p.batch = random_int(random, 1, 3);
  p.heads = random_int(random, 1, 3);
  p.tile = {random_int(random, 8, 20), random_int(random, 8, 20)};
  const int64_t rows = random_int(random, 1, 12);
  const int64_t columns = random_int(random, 1, 12);
  p.q_len = rows * p.tile.q;
  p.kv_len = columns * p.tile.kv;
  if (random_int(random, 0, 1) == 0) {
    p.q_len -= random_int(random, 0, p.tile.q - 1);
  }
  if (random_int(random, 0, 1) == 0) {
    p.kv_len -= random_int(random, 0, p.tile.kv - 1);
  }
  p.forward = random_worklist(random, p.batch * p.heads, rows, columns);
  p.transposed = transpose(p.forward);
  for (int64_t l = 0; l < p.batch * p.heads; ++l) {
    p.legal_pairs.push_back(random_int(random, 0, p.q_len * p.kv_len));
  }
  return p;
}

// Calls `check(random, seed)` for successive seeds until one fails.
template <class Check>
void for_seeds(int64_t cases, const Check& check) {
  const uint64_t first = first_seed(1);
  const int64_t n = case_count(cases);
  for (int64_t i = 0; i < n && !::testing::Test::HasFailure(); ++i) {
    const uint64_t seed = first + static_cast<uint64_t>(i);
    SCOPED_TRACE("run again with TESSERA_SEED=" + std::to_string(seed) +
                 " TESSERA_CASES=1");
    std::mt19937_64 random(seed);
    check(random, seed);
  }
}

}  // namespace tessera::testing
