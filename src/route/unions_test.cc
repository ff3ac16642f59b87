// Unions of tile rows by both methods, and their capacity.
#include "route/unions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace tessera::routing {
namespace {

using Ids = std::vector<int32_t>;

Ids random_picks(const PickSizes& s, uint64_t seed) {
  std::mt19937_64 random(seed);
  Ids out(static_cast<size_t>(s.batch * s.heads * s.q_len * s.k), -1);
  for (size_t at = 0; at < out.size(); at += static_cast<size_t>(s.k)) {
    std::set<int32_t> picks;
    for (int64_t i = 0; i < s.k; ++i) {
      if (random() % 4 != 0) {
        picks.insert(
            static_cast<int32_t>(random() % static_cast<uint64_t>(s.blocks())));
      }
    }
    std::copy(picks.begin(), picks.end(),
              out.begin() + static_cast<std::ptrdiff_t>(at));
  }
  return out;
}

TEST(RouteUnions, BothMethodsHoldEachRowsPicksAndNoMore) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    const PickSizes s{2,  3,
                      23, 1 + static_cast<int64_t>(seed % 5),
                      4,  40 + 60 * static_cast<int64_t>(seed)};
    const int64_t tile = 1 + static_cast<int64_t>(seed % 9);
    const Ids picks = random_picks(s, seed);
    const PickUnions u = make_unions(s, picks, tile, UnionMethod::bitmap, 2);
    EXPECT_EQ(u, make_unions(s, picks, tile, UnionMethod::sort, 3));
    ASSERT_EQ(u.tiles, (23 + tile - 1) / tile);
    for (int64_t list = 0; list < 6; ++list) {
      for (int64_t q = 0; q < 23; ++q) {
        const auto row = u.row(list * u.tiles + q / tile);
        for (int64_t i = 0; i < s.k; ++i) {
          const auto at = static_cast<size_t>((list * 23 + q) * s.k + i);
          if (picks[at] < 0) {
            EXPECT_EQ(u.slots[at], -1);
          } else {
            EXPECT_EQ(row[static_cast<size_t>(u.slots[at])], picks[at]);
          }
        }
      }
      for (int64_t t = 0; t < u.tiles; ++t) {
        std::set<int32_t> want;
        for (int64_t q = t * tile; q < std::min<int64_t>(23, (t + 1) * tile);
             ++q) {
          for (int64_t i = 0; i < s.k; ++i) {
            const int32_t p =
                picks[static_cast<size_t>((list * 23 + q) * s.k + i)];
            if (p >= 0) want.insert(p);
          }
        }
        const auto row = u.row(list * u.tiles + t);
        EXPECT_EQ(Ids(row.begin(), row.end()), Ids(want.begin(), want.end()));
      }
    }
  }
}

TEST(RouteUnions, OverCapacityNamesTheTileRow) {
  const PickSizes s{1, 2, 4, 2, 8, 64};
  // Head 1's second tile row, of two queries, is the widest: 4 blocks.
  const Ids picks = {0, 1, 0, 1, 2, -1, 3, -1, 0, -1, 1, -1, 2, 3, 4, 5};
  PickUnions u = make_unions(s, picks, 2, UnionMethod::bitmap, 1);
  EXPECT_EQ(u.widest, 4);
  ASSERT_TRUE(set_capacity(0, u));
  EXPECT_EQ(u.capacity, 4);
  ASSERT_TRUE(set_capacity(9, u));
  EXPECT_EQ(u.capacity, 9);
  auto e = set_capacity(3, u);
  ASSERT_FALSE(e);
  EXPECT_EQ(e.error().kind, ErrorKind::limit);
  EXPECT_EQ(e.error().message,
            "[route] a tile row's union must be at most max_union 3 blocks, "
            "found 4 for "
            "tile row 1 of batch row 0, head 1");
}

// Union sizes within a bucket have one capacity.
TEST(RouteUnions, TheClassIsABucket) {
  const PickSizes s{1, 1, 1, 5, 8, 64};
  PickUnions u = make_unions(s, Ids{0, 1, 2, 3, 4}, 1, UnionMethod::bitmap, 1);
  ASSERT_TRUE(set_capacity(0, u));
  EXPECT_EQ(u.capacity, 6);
}

}  // namespace
}  // namespace tessera::routing
