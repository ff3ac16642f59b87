// plan/regroup_test.cc: regrouped rows against sets, and expanded again.
#include <gtest/gtest.h>

#include <set>

#include "tessera/layouts.h"
#include "tests/random_worklist.h"

namespace tessera::plan {
namespace {

using testing::for_seeds;
using testing::random_int;
using testing::random_worklist;

// Tiles of every row, read back from the groups.
Worklist expand(const Regrouped& g, int64_t rows, int64_t columns) {
  Worklist w;
  w.lists = static_cast<int64_t>(g.group_start.size()) - 1;
  w.rows = rows;
  w.columns = columns;
  w.row_start.push_back(0);
  for (size_t l = 0; l + 1 < g.group_start.size(); ++l) {
    for (uint32_t i = g.group_start[l]; i < g.group_start[l + 1]; ++i) {
      for (uint32_t r = 0; r < g.groups[i].rows; ++r) {
        for (uint32_t c = g.groups[i].begin; c < g.groups[i].end; ++c) {
          const int tile_class =
              g.classes[c * static_cast<size_t>(g.rows_per_group) + r];
          if (tile_class == 0) continue;
          w.entries.push_back(
              Entry::of(g.columns[c], static_cast<TileClass>(tile_class)));
        }
        w.row_start.push_back(static_cast<uint32_t>(w.entries.size()));
      }
    }
  }
  return w;
}

TEST(Regroup, ByHand) {
  const Worklist w = {
      1,
      3,
      5,
      {0, 2, 4, 4},
      {Entry::of(0, TileClass::full), Entry::of(3, TileClass::partial),
       Entry::of(1, TileClass::full), Entry::of(3, TileClass::full)}};
  auto g = regroup(w, 2, 2);
  ASSERT_TRUE(g.ok()) << g.error().message;
  EXPECT_EQ(g->columns, (std::vector<uint32_t>{0, 1, 3}));
  EXPECT_EQ(g->classes, (std::vector<uint8_t>{2, 0, 0, 2, 1, 2}));
  ASSERT_EQ(g->groups.size(), 2u);
  EXPECT_EQ(g->groups[1].first_row, 2u);
  EXPECT_EQ(g->groups[1].rows, 1u);
  EXPECT_EQ(g->groups[1].begin, 3u);
  EXPECT_EQ(g->groups[1].end, 3u);
  EXPECT_EQ(g->steps, 3);  // 2 steps for 3 tiles, 1 for the empty group
  EXPECT_EQ(g->dead_tiles, 2);
}

TEST(Regroup, RandomListsExpandToThemselves) {
  for_seeds(800, [](std::mt19937_64& random, uint64_t) {
    const Worklist w =
        random_worklist(random, random_int(random, 0, 3),
                        random_int(random, 1, 12), random_int(random, 1, 12));
    const int64_t per_group = random_int(random, 1, 14);
    const int64_t per_step = random_int(random, 1, 9);
    auto g = regroup(w, per_group, per_step);
    ASSERT_TRUE(g.ok()) << g.error().message;
    ASSERT_EQ(g->group_start.size(), static_cast<size_t>(w.lists + 1));
    EXPECT_EQ(g->rows_per_group, per_group);
    EXPECT_EQ(g->tiles_per_step, per_step);
    EXPECT_EQ(g->classes.size(),
              g->columns.size() * static_cast<size_t>(per_group));
    int64_t steps = 0;
    int64_t dead = 0;
    size_t at = 0;
    size_t column = 0;
    for (int64_t l = 0; l < w.lists; ++l) {
      ASSERT_EQ(g->group_start[static_cast<size_t>(l)], at);
      for (int64_t r = 0; r < w.rows; r += per_group, ++at) {
        ASSERT_LT(at, g->groups.size());
        const Group& group = g->groups[at];
        const int64_t rows = std::min(per_group, w.rows - r);
        std::set<int64_t> columns;
        int64_t tiles = 0;
        for (int64_t i = r; i < r + rows; ++i) {
          for (const Entry e : w.row(l, i)) {
            columns.insert(e.column());
            ++tiles;
          }
        }
        EXPECT_EQ(group.first_row, r);
        EXPECT_EQ(group.rows, rows);
        EXPECT_EQ(group.begin, column);
        ASSERT_EQ(group.end, column + columns.size());
        for (int64_t c : columns) EXPECT_EQ(g->columns[column++], c);
        // Slots of missing rows stay 0.
        for (size_t c = group.begin; c < group.end; ++c) {
          for (int64_t i = rows; i < per_group; ++i) {
            EXPECT_EQ(g->classes[c * static_cast<size_t>(per_group) +
                                 static_cast<size_t>(i)],
                      0);
          }
        }
        const auto n = static_cast<int64_t>(columns.size());
        dead += n * rows - tiles;
        int64_t left = n;
        do {
          ++steps;
          left -= per_step;
        } while (left > 0);
      }
    }
    ASSERT_EQ(at, g->groups.size());
    EXPECT_EQ(g->group_start.back(), at);
    EXPECT_EQ(g->steps, steps);
    EXPECT_EQ(g->dead_tiles, dead);
    EXPECT_EQ(expand(*g, w.rows, w.columns), w);
  });
}

TEST(Regroup, HostileNumbersAreRefused) {
  const Worklist w = {1, 1, 4, {0, 1}, {Entry::of(0, TileClass::full)}};
  for (int64_t n : {int64_t{0}, int64_t{-1}, int64_t{65}, INT64_MAX}) {
    auto g = regroup(w, n, 1);
    ASSERT_FALSE(g.ok());
    EXPECT_EQ(g.error().message,
              "[regroup] rows a group must be between 1 and 64, found " +
                  std::to_string(n));
  }
  for (int64_t n : {int64_t{0}, int64_t{-1}, kMaxTiles + 1, INT64_MAX}) {
    auto g = regroup(w, 1, n);
    ASSERT_FALSE(g.ok());
    EXPECT_EQ(g.error().message,
              "[regroup] tiles a step must be between 1 and 268435456, found " +
                  std::to_string(n));
  }
  EXPECT_EQ(regroup(w, 64, kMaxTiles)->steps, 1);
}

// The count is refused before the classes are allocated.
TEST(Regroup, MoreSlotsThanALayoutMayHoldAreRefused) {
  constexpr int64_t kColumns = kMaxLayoutBytes / 64 + 1;
  Worklist w = {1, 1, kColumns, {0, static_cast<uint32_t>(kColumns)}, {}};
  w.entries.reserve(static_cast<size_t>(kColumns));
  for (int64_t c = 0; c < kColumns; ++c) {
    w.entries.push_back(Entry::of(c, TileClass::full));
  }
  auto g = regroup(w, 64, 1);
  ASSERT_FALSE(g.ok());
  EXPECT_EQ(g.error().kind, ErrorKind::limit);
  EXPECT_EQ(g.error().message,
            "[regroup] regrouped rows may hold 1073741824 class slots, found "
            "1073741888 for 64 rows a group");
}

}  // namespace
}  // namespace tessera::plan
