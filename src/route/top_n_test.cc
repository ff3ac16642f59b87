// Tests the picks of one query from scores.
#include "route/top_n.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

namespace tessera::routing {
namespace {

using Ids = std::vector<int32_t>;

Ids pick(const std::vector<float>& scores, const Ids& blocks, const Ids& forced,
         size_t top) {
  TopScratch scratch;
  Ids picks(top, 99);
  pick_top(scores, blocks, forced, scratch, picks);
  return picks;
}

TEST(RouteTopN, TiesGoToTheLowestBlock) {
  EXPECT_EQ(pick({1, 2, 2, 2, 1}, {0, 1, 2, 3, 4}, {}, 2), (Ids{1, 2}));
  EXPECT_EQ(pick({1, 1, 1, 1}, {3, 5, 7, 9}, {}, 3), (Ids{3, 5, 7}));
  EXPECT_EQ(pick({0.0F, -0.0F}, {1, 2}, {}, 1), (Ids{1}));
}

TEST(RouteTopN, ForcedBlocksCount) {
  EXPECT_EQ(pick({5, 4, 3, 2}, {0, 1, 2, 3}, {2, 8}, 3), (Ids{0, 2, 8}));
  EXPECT_EQ(pick({5, 4}, {0, 1}, {6, 8}, 2), (Ids{6, 8}));
  // A forced block that also scores is picked once.
  EXPECT_EQ(pick({5, 4, 3}, {0, 1, 2}, {0}, 2), (Ids{0, 1}));
}

TEST(RouteTopN, FewerBlocksLeaveSlots) {
  EXPECT_EQ(pick({1}, {4}, {2}, 4), (Ids{2, 4, -1, -1}));
  EXPECT_EQ(pick({}, {}, {}, 2), (Ids{-1, -1}));
  const float inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(pick({-inf, inf}, {1, 2}, {}, 2), (Ids{1, 2}));
}

// The previous query's state is only a guess and does not change picks.
TEST(RouteTopN, IsASortByScoreThenBlock) {
  std::mt19937_64 random(1);
  TopScratch scratch;
  for (int trial = 0; trial < 500; ++trial) {
    const size_t n = random() % 90;
    const size_t top = 1 + random() % 60;
    // Guesses vary: some keep all blocks, some none, some a part.
    const float offset = static_cast<float>(random() % 3) * 2;
    std::vector<float> scores;
    Ids blocks;
    for (size_t i = 0; i < n; ++i) {
      scores.push_back(static_cast<float>(random() % 6) + offset);
      blocks.push_back(static_cast<int32_t>(2 * i + random() % 2));
    }
    std::vector<size_t> order(n);
    for (size_t i = 0; i < n; ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t l, size_t r) { return scores[l] > scores[r]; });
    Ids want;
    for (size_t i = 0; i < std::min(n, top); ++i) {
      want.push_back(blocks[order[i]]);
    }
    std::sort(want.begin(), want.end());
    want.resize(top, -1);
    EXPECT_EQ(pick(scores, blocks, {}, top), want) << "trial " << trial;
    Ids again(top, 99);
    pick_top(scores, blocks, {}, scratch, again);
    EXPECT_EQ(again, want) << "trial " << trial;
  }
}

}  // namespace
}  // namespace tessera::routing
