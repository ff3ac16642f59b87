// plan/bitmaps_test.cc: token masks against brute force, pair by pair.
#include <gtest/gtest.h>

#include "plan/make_plan.h"
#include "tessera/layouts.h"
#include "tessera/plan.h"
#include "tests/oracle.h"
#include "tests/random_case.h"
#include "tests/random_worklist.h"

namespace tessera::plan {
namespace {

using namespace testing;

struct Planned {
  Request request;
  Plan plan;
  Bitmaps bitmaps;
};

Planned planned(const char* mask, int64_t q_len, int64_t kv_len, Tile tile) {
  Planned p;
  auto parsed = parse_mask(mask);
  EXPECT_TRUE(parsed.ok());
  p.request.masks = {*parsed};
  p.request.q_len = q_len;
  p.request.kv_len = kv_len;
  p.request.tile = tile;
  auto plan = make_plan(p.request, {});
  EXPECT_TRUE(plan.ok()) << plan.error().message;
  p.plan = *plan;
  auto bitmaps = make_bitmaps(*BorrowedBatch::make(p.request, {}));
  EXPECT_TRUE(bitmaps.ok()) << bitmaps.error().message;
  p.bitmaps = *bitmaps;
  return p;
}

TEST(Bitmaps, CausalByHand) {
  const Planned p = planned("causal", 24, 24, {8, 8});
  // Three diagonal tiles share one mask: row q holds bits 0 to q.
  EXPECT_EQ(p.bitmaps.words_per_tile, 1);
  EXPECT_EQ(p.bitmaps.words, (std::vector<uint64_t>{0xff7f3f1f0f070301}));
  EXPECT_EQ(p.bitmaps.of_entry, (std::vector<int32_t>{0, -1, 0, -1, -1, 0}));
}

TEST(Bitmaps, BitsBeyondTheTokensAreZero) {
  // 12 x 12 tokens: tile (1, 1) has 4 queries and 4 keys.
  const Planned p = planned("causal", 12, 12, {8, 8});
  EXPECT_EQ(p.bitmaps.words,
            (std::vector<uint64_t>{0xff7f3f1f0f070301, 0x0f070301}));
  EXPECT_EQ(p.bitmaps.of_entry, (std::vector<int32_t>{0, -1, 1}));
}

TEST(Bitmaps, ATileNeedNotFillItsWords) {
  const Planned p = planned("causal", 9, 9, {9, 9});
  EXPECT_EQ(p.bitmaps.words_per_tile, 2);
  ASSERT_EQ(p.bitmaps.words.size(), 2u);
  for (int64_t q = 0; q < 9; ++q) {
    for (int64_t k = 0; k < 9; ++k) {
      const int64_t bit = q * 9 + k;
      EXPECT_EQ(
          p.bitmaps.words[static_cast<size_t>(bit / 64)] >> (bit % 64) & 1,
          k <= q ? 1u : 0u);
    }
  }
  EXPECT_EQ(p.bitmaps.words[1] >> (81 - 64), 0u);
}

TEST(Bitmaps, NoPartialTileNoWords) {
  const Planned p = planned("full", 12, 12, {8, 8});
  EXPECT_TRUE(p.bitmaps.words.empty());
  EXPECT_EQ(p.bitmaps.of_entry, (std::vector<int32_t>{-1, -1, -1, -1}));
}

// 131,072 tokens have two masks: the diagonal and the window's far edge.
TEST(Bitmaps, StaticMasksRepeat) {
  const Planned p =
      planned("causal & window(255, 0)", 1 << 17, 1 << 17, {64, 64});
  EXPECT_EQ(p.bitmaps.words.size(),
            static_cast<size_t>(2 * p.bitmaps.words_per_tile));
}

void check_case(const RandomCase& c) {
  auto request = c.request();
  ASSERT_TRUE(request.ok()) << request.error().message;
  const Facts facts = c.facts();
  auto plan = make_plan(*request, facts);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  auto bitmaps = make_bitmaps(*BorrowedBatch::make(*request, facts));
  ASSERT_TRUE(bitmaps.ok()) << bitmaps.error().message;
  const Oracle oracle(c.masks, *request, facts);
  const auto per_tile = static_cast<size_t>((c.tile.q * c.tile.kv + 63) / 64);
  ASSERT_EQ(bitmaps->words_per_tile, static_cast<int64_t>(per_tile));
  ASSERT_EQ(bitmaps->of_entry.size(), plan->forward.entries.size());
  std::vector<std::vector<uint64_t>> met;
  size_t at = 0;
  for (int64_t b = 0; b < plan->batch; ++b) {
    for (int64_t h = 0; h < plan->heads; ++h) {
      for (int64_t r = 0; r < plan->forward.rows; ++r) {
        for (const Entry e : plan->forward.row(plan->list(b, h), r)) {
          const int32_t number = bitmaps->of_entry[at++];
          if (e.tile_class() == TileClass::full) {
            ASSERT_EQ(number, -1);
            continue;
          }
          std::vector<uint64_t> due(per_tile, 0);
          for (int64_t q = 0; q < c.tile.q; ++q) {
            for (int64_t k = 0; k < c.tile.kv; ++k) {
              const int64_t i = r * c.tile.q + q;
              const int64_t j = e.column() * c.tile.kv + k;
              if (i >= c.q_len || j >= c.kv_len) continue;
              if (!oracle.legal(b, h, i, j)) continue;
              const int64_t bit = q * c.tile.kv + k;
              due[static_cast<size_t>(bit / 64)] |= uint64_t{1} << (bit % 64);
            }
          }
          const auto place = std::find(met.begin(), met.end(), due);
          ASSERT_EQ(number, place - met.begin())
              << "tile (" << r << ", " << e.column() << ")";
          if (place == met.end()) met.push_back(due);
          const auto words =
              bitmaps->words.begin() + static_cast<int64_t>(per_tile) * number;
          ASSERT_TRUE(std::equal(due.begin(), due.end(), words))
              << "tile (" << r << ", " << e.column() << ")";
        }
      }
    }
  }
  ASSERT_EQ(bitmaps->words.size(), met.size() * per_tile);
}

TEST(Bitmaps, AreWhatBruteForceSaysOnceEachInOrder) {
  for_seeds(1500, [](std::mt19937_64&, uint64_t seed) {
    const RandomCase c = random_case(seed);
    SCOPED_TRACE(describe(c));
    check_case(c);
  });
}

}  // namespace
}  // namespace tessera::plan
