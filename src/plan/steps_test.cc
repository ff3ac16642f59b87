// plan/steps_test.cc: packed steps against tiles looked up one at a time.
#include "plan/steps.h"

#include <gtest/gtest.h>

#include "tests/random_worklist.h"

namespace tessera::plan {
namespace {

using testing::for_seeds;
using testing::random_int;
using testing::random_plan;

// 2 x 3 tiles of 8 x 8, 20 keys: the last column is ragged.
Plan small_plan() {
  Plan p;
  p.q_len = 16;
  p.kv_len = 20;
  p.tile = {8, 8};
  p.forward = {1,
               2,
               3,
               {0, 3, 3},
               {Entry::of(0, TileClass::full), Entry::of(1, TileClass::partial),
                Entry::of(2, TileClass::full)}};
  p.transposed = transpose(p.forward);
  p.legal_pairs = {8 * 8 + 1 + 8 * 4};
  return p;
}

Step step(uint32_t row, uint32_t column, uint32_t step_class, bool first,
          bool last) {
  return {row * 262144 + column * 16 + step_class * 4 + (first ? 2u : 0u) +
          (last ? 1u : 0u)};
}

TEST(Steps, BitsLieWhereTheHeaderSays) {
  const Step s{0b10000000000001'01000000000011'11'1'0u};
  EXPECT_EQ(s.row(), 8193);
  EXPECT_EQ(s.column(), 4099);
  EXPECT_EQ(s.step_class(), 3);
  EXPECT_TRUE(s.first());
  EXPECT_FALSE(s.last());
}

TEST(Steps, ForwardByHand) {
  auto s = steps_of_plan(small_plan(), false);
  ASSERT_TRUE(s.ok()) << s.error().message;
  const std::vector<Step> due = {
      step(0, 0, 2, true, false), step(0, 1, 1, false, false),
      step(0, 2, 3, false, true), step(1, 0, 0, true, true)};
  EXPECT_EQ(s->steps, due);
  EXPECT_EQ(s->range, (std::vector<uint32_t>{0, 4}));
}

TEST(Steps, TransposedByHand) {
  auto s = steps_of_plan(small_plan(), true);
  ASSERT_TRUE(s.ok()) << s.error().message;
  const std::vector<Step> due = {step(0, 0, 2, true, true),
                                 step(1, 0, 1, true, true),
                                 step(2, 0, 3, true, true)};
  EXPECT_EQ(s->steps, due);
}

TEST(Steps, RowsFillUpTheirLastPass) {
  auto s = steps_of_plan(small_plan(), false, 2);
  ASSERT_TRUE(s.ok()) << s.error().message;
  const std::vector<Step> due = {
      step(0, 0, 2, true, false),  step(0, 1, 1, false, false),
      step(0, 2, 3, false, false), step(0, 2, 0, false, true),
      step(1, 0, 0, true, false),  step(1, 0, 0, false, true)};
  EXPECT_EQ(s->steps, due);
  EXPECT_EQ(s->range, (std::vector<uint32_t>{0, 6}));
  EXPECT_EQ(step_count(small_plan().forward, 2), 6);
  for (int64_t tiles : {0, 65}) {
    auto none = steps_of_plan(small_plan(), false, tiles);
    ASSERT_FALSE(none.ok());
    EXPECT_EQ(none.error().message,
              "[steps] tiles a pass must be between 1 and 64, found " +
                  std::to_string(tiles));
  }
}

// Checks counts, classes, marks and order against their definitions.
void check_steps(const Plan& p, bool transposed, int64_t tiles_per_pass) {
  auto packed = steps_of_plan(p, transposed, tiles_per_pass);
  ASSERT_TRUE(packed.ok()) << packed.error().message;
  const Worklist& w = transposed ? p.transposed : p.forward;
  ASSERT_EQ(packed->range.size(), static_cast<size_t>(w.lists + 1));
  size_t at = 0;
  for (int64_t l = 0; l < w.lists; ++l) {
    ASSERT_EQ(packed->range[static_cast<size_t>(l)], at);
    for (int64_t r = 0; r < w.rows; ++r) {
      std::vector<Step> row;
      while (at < packed->range[static_cast<size_t>(l) + 1] &&
             packed->steps[at].row() == r) {
        row.push_back(packed->steps[at++]);
      }
      ASSERT_FALSE(row.empty()) << "row " << r;
      size_t i = 0;
      for (int64_t c = 0; c < w.columns; ++c) {
        int tile_class = 0;
        for (const Entry e : w.row(l, r)) {
          if (e.column() == c) tile_class = static_cast<int>(e.tile_class());
        }
        if (tile_class == 0) continue;
        const int64_t q_tile = transposed ? c : r;
        const int64_t k_tile = transposed ? r : c;
        bool crosses = false;
        for (int64_t q = 0; q < p.tile.q; ++q) {
          crosses |= q_tile * p.tile.q + q >= p.q_len;
        }
        for (int64_t k = 0; k < p.tile.kv; ++k) {
          crosses |= k_tile * p.tile.kv + k >= p.kv_len;
        }
        ASSERT_LT(i, row.size());
        EXPECT_EQ(row[i].column(), c);
        EXPECT_EQ(row[i].step_class(),
                  tile_class == 2 && crosses ? 3 : tile_class);
        ++i;
      }
      const int64_t last = i > 0 ? row[i - 1].column() : 0;
      const size_t tiles = std::max<size_t>(i, 1);
      ASSERT_LT(row.size() - tiles, static_cast<size_t>(tiles_per_pass));
      ASSERT_EQ(row.size() % static_cast<size_t>(tiles_per_pass), 0u);
      for (; i < row.size(); ++i) {
        EXPECT_EQ(row[i].step_class(), 0);
        EXPECT_EQ(row[i].column(), last);
      }
      for (size_t k = 0; k < row.size(); ++k) {
        EXPECT_EQ(row[k].first(), k == 0);
        EXPECT_EQ(row[k].last(), k + 1 == row.size());
      }
    }
    ASSERT_EQ(packed->range[static_cast<size_t>(l) + 1], at);
  }
  ASSERT_EQ(at, packed->steps.size());
  auto back = list_from_steps(*packed, w.rows, w.columns);
  ASSERT_TRUE(back.ok()) << back.error().message;
  EXPECT_EQ(*back, w);
}

TEST(Steps, RandomListsPackExactlyAndComeBack) {
  for_seeds(400, [](std::mt19937_64& random, uint64_t) {
    const Plan p = random_plan(random);
    for (int64_t tiles : {int64_t{1}, random_int(random, 2, 5)}) {
      check_steps(p, false, tiles);
      check_steps(p, true, tiles);
    }
  });
}

// A change of one field of one step is either refused or gives a different
// list. Nothing is read out of bounds.
TEST(Steps, DamagedStepsNeverComeBackAsTheSameList) {
  for_seeds(400, [](std::mt19937_64& random, uint64_t) {
    const Plan p = random_plan(random);
    auto packed = steps_of_plan(p, false, random_int(random, 1, 3));
    ASSERT_TRUE(packed.ok());
    Steps damaged = *packed;
    const auto at = static_cast<size_t>(
        random_int(random, 0, static_cast<int64_t>(damaged.steps.size()) - 1));
    const uint32_t bit = uint32_t{1} << random_int(random, 0, 31);
    damaged.steps[at].word ^= bit;
    auto back = list_from_steps(damaged, p.forward.rows, p.forward.columns);
    // Classes 2 and 3 are both full in a list, so only that bit may be lost.
    const bool both_full = bit == 4 && packed->steps[at].step_class() >= 2;
    if (back.ok() && !both_full) {
      EXPECT_NE(*back, p.forward);
    }
  });
}

TEST(Steps, ErrorsOfUnpacking) {
  auto packed = steps_of_plan(small_plan(), false);
  ASSERT_TRUE(packed.ok());
  const auto message = [](const Steps& s, int64_t rows, int64_t columns) {
    auto r = list_from_steps(s, rows, columns);
    return r.ok() ? std::string("no error") : r.error().message;
  };
  EXPECT_EQ(message(*packed, 2, 3), "no error");
  EXPECT_EQ(message(*packed, 0, 3),
            "[steps] tile rows and columns must be between 1 and 16384, found "
            "0 and 3");
  EXPECT_EQ(message({{}, {}}, 2, 3),
            "[steps] ranges must rise from 0 to 0 steps, found none");
  EXPECT_EQ(message(*packed, 5, 3),
            "[steps] steps must be at least one a row, found 4 for 5");
  EXPECT_EQ(message(*packed, 3, 3),
            "[steps] every row must end with a step marked last, found 2 of 3 "
            "rows for list 0");
  EXPECT_EQ(message(*packed, 1, 3),
            "[steps] rows must follow each other from 0, found row 1, column "
            "0, class 0, first 1, last 1 for step 3");
  EXPECT_EQ(message(*packed, 2, 2),
            "[steps] columns must ascend inside the grid, found row 0, column "
            "2, class 3, first 0, last 1 for step 2");
  Steps s = *packed;
  s.tiles_per_pass = 2;
  EXPECT_EQ(message(s, 2, 3),
            "[steps] a row must fill its last pass, found row 0, column 2, "
            "class 3, first 0, last 1 for step 2");
  s.tiles_per_pass = 1;
  s.steps[1] = step(0, 0, 0, false, false);
  EXPECT_EQ(message(s, 2, 3),
            "[steps] class 0 must not begin another pass, found row 0, column "
            "0, class 0, first 0, last 0 for step 1");
  s = *packed;
  s.range = {0, 5, 4};
  EXPECT_EQ(message(s, 2, 3),
            "[steps] ranges must rise from 0 to 4 steps, found 4");
}

// The row and the column have 14 bits each, in either direction.
TEST(Steps, TheGridLimitIsExact) {
  for (int64_t tiles : {kMaxStepRows, kMaxStepRows + 1}) {
    for (bool wide : {false, true}) {
      Plan p;
      p.tile = {8, 8};
      p.q_len = wide ? 8 : tiles * 8;
      p.kv_len = wide ? tiles * 8 : 8;
      const int64_t rows = wide ? 1 : tiles;
      const int64_t columns = wide ? tiles : 1;
      p.forward = {1, rows, columns, {}, {}};
      p.forward.row_start.assign(static_cast<size_t>(rows) + 1, 1);
      p.forward.row_start[0] = 0;
      p.forward.entries = {Entry::of(columns - 1, TileClass::full)};
      p.transposed = transpose(p.forward);
      p.legal_pairs = {64};
      for (bool transposed : {false, true}) {
        auto s = steps_of_plan(p, transposed);
        if (tiles == kMaxStepRows) {
          ASSERT_TRUE(s.ok()) << s.error().message;
          const Worklist& w = transposed ? p.transposed : p.forward;
          EXPECT_EQ(s->steps.size(), static_cast<size_t>(w.rows));
          EXPECT_EQ(s->steps.back().row(), w.rows - 1);
          EXPECT_EQ(*list_from_steps(*s, w.rows, w.columns), w);
        } else {
          ASSERT_FALSE(s.ok());
          EXPECT_EQ(s.error().kind, ErrorKind::limit);
          EXPECT_EQ(s.error().message,
                    "[steps] packed steps count at most 16384 tile rows or "
                    "columns, found 16385 (use a larger tile)");
        }
      }
    }
  }
}

// Ranges are 32 bits, and padding to whole passes multiplies steps.
TEST(Steps, MoreThanALayoutHoldsAreRefused) {
  Plan p;
  p.batch = 257;
  p.tile = {1, 1};
  p.q_len = kMaxStepRows;
  p.kv_len = 1;
  p.forward = {p.batch, p.q_len, 1, {}, {}};
  p.forward.row_start.assign(static_cast<size_t>(p.batch * p.q_len) + 1, 0);
  p.transposed = transpose(p.forward);
  p.legal_pairs.assign(static_cast<size_t>(p.batch), 0);
  auto s = steps_of_plan(p, false, kMaxTilesPerPass);
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.error().kind, ErrorKind::limit);
  EXPECT_EQ(s.error().message,
            "[steps] packed steps may be 268435456, found 269484032 of 257 "
            "lists of 16384 rows");
  EXPECT_TRUE(steps_of_plan(p, true, kMaxTilesPerPass).ok());
}

TEST(Steps, APlanThatIsNoneIsRefused) {
  Plan p = small_plan();
  p.forward.row_start[1] = 9;
  auto s = steps_of_plan(p, false);
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.error().message,
            "[steps] row starts must rise, found 0 to 9 for row 0");
  EXPECT_FALSE(steps_of_plan(Plan{}, false).ok());
}

}  // namespace
}  // namespace tessera::plan
