// plan/transpose_test.cc: every tile is found with row and column exchanged.
#include <gtest/gtest.h>

#include "tests/random_worklist.h"

namespace tessera::plan {
namespace {

using testing::for_seeds;
using testing::random_int;
using testing::random_worklist;

std::vector<int> dense(const Worklist& w, bool exchanged) {
  std::vector<int> cells(static_cast<size_t>(w.lists * w.rows * w.columns), 0);
  for (int64_t l = 0; l < w.lists; ++l) {
    for (int64_t r = 0; r < w.rows; ++r) {
      for (const Entry e : w.row(l, r)) {
        const int64_t at = exchanged
                               ? (l * w.columns + e.column()) * w.rows + r
                               : (l * w.rows + r) * w.columns + e.column();
        cells[static_cast<size_t>(at)] = static_cast<int>(e.tile_class());
      }
    }
  }
  return cells;
}

TEST(Transpose, RandomListsExchangeAndComeBack) {
  for_seeds(800, [](std::mt19937_64& random, uint64_t) {
    const Worklist w =
        random_worklist(random, random_int(random, 0, 4),
                        random_int(random, 1, 14), random_int(random, 1, 14));
    const Worklist t = transpose(w);
    ASSERT_EQ(t.lists, w.lists);
    ASSERT_EQ(t.rows, w.columns);
    ASSERT_EQ(t.columns, w.rows);
    ASSERT_EQ(t.row_start.size(), static_cast<size_t>(t.lists * t.rows + 1));
    ASSERT_EQ(t.entries.size(), w.entries.size());
    EXPECT_EQ(dense(t, false), dense(w, true));
    for (int64_t l = 0; l < t.lists; ++l) {
      for (int64_t r = 0; r < t.rows; ++r) {
        int64_t before = -1;
        for (const Entry e : t.row(l, r)) {
          EXPECT_GT(e.column(), before);
          before = e.column();
        }
      }
    }
    EXPECT_EQ(transpose(t), w);
  });
}

TEST(Transpose, ListsWithoutTiles) {
  const Worklist w = {2, 3, 5, std::vector<uint32_t>(7, 0), {}};
  const Worklist t = transpose(w);
  EXPECT_EQ(t.row_start, std::vector<uint32_t>(11, 0));
  EXPECT_EQ(transpose(t), w);
}

}  // namespace
}  // namespace tessera::plan
