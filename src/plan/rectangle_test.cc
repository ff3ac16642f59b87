// plan/rectangle_test.cc: checks the rectangle cell by cell, and the way back.
#include <gtest/gtest.h>

#include "tessera/layouts.h"
#include "tests/random_worklist.h"

namespace tessera::plan {
namespace {

using testing::for_seeds;
using testing::random_int;
using testing::random_worklist;

Worklist small_list() {
  return {1,
          2,
          4,
          {0, 2, 3},
          {Entry::of(0, TileClass::full), Entry::of(3, TileClass::partial),
           Entry::of(2, TileClass::full)}};
}

std::string error_of(const Rectangle& r, int64_t columns) {
  auto w = list_from_rectangle(r, columns);
  return w.ok() ? "no error" : w.error().message;
}

TEST(Rectangle, ByHand) {
  EXPECT_EQ(grid_width(small_list()), 2);
  auto r = make_rectangle(small_list(), 3);
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_EQ(r->column, (std::vector<int32_t>{0, 3, 0, 2, 0, 0}));
  EXPECT_EQ(r->tile_class, (std::vector<uint8_t>{2, 1, 0, 2, 0, 0}));
}

TEST(Rectangle, RandomListsComeBack) {
  for_seeds(600, [](std::mt19937_64& random, uint64_t) {
    const Worklist w =
        random_worklist(random, random_int(random, 0, 4),
                        random_int(random, 1, 12), random_int(random, 1, 12));
    int64_t widest = 0;
    for (int64_t l = 0; l < w.lists; ++l) {
      for (int64_t r = 0; r < w.rows; ++r) {
        widest =
            std::max<int64_t>(widest, static_cast<int64_t>(w.row(l, r).size()));
      }
    }
    ASSERT_EQ(grid_width(w), widest);
    if (widest > 0) {
      EXPECT_FALSE(make_rectangle(w, widest - 1).ok());
    }
    const int64_t width = widest + random_int(random, 0, 3);
    auto r = make_rectangle(w, width);
    ASSERT_TRUE(r.ok()) << r.error().message;
    ASSERT_EQ(r->column.size(), static_cast<size_t>(w.lists * w.rows * width));
    for (int64_t l = 0; l < w.lists; ++l) {
      for (int64_t row = 0; row < w.rows; ++row) {
        const auto entries = w.row(l, row);
        for (int64_t i = 0; i < width; ++i) {
          const auto at = static_cast<size_t>((l * w.rows + row) * width + i);
          const bool real = i < static_cast<int64_t>(entries.size());
          const Entry e = real ? entries[static_cast<size_t>(i)] : Entry{};
          EXPECT_EQ(r->column[at], e.column());
          EXPECT_EQ(r->tile_class[at], static_cast<int>(e.tile_class()));
        }
      }
    }
    auto back = list_from_rectangle(*r, w.columns);
    ASSERT_TRUE(back.ok()) << back.error().message;
    EXPECT_EQ(*back, w);
  });
}

TEST(Rectangle, TooNarrowOrTooLargeIsRefused) {
  auto narrow = make_rectangle(small_list(), 1);
  ASSERT_FALSE(narrow.ok());
  EXPECT_EQ(narrow.error().message,
            "[rectangle] width must be at least the 2 tiles of the widest row, "
            "found 1");
  for (int64_t width : {kMaxTiles, kMaxTiles + 1, INT64_MAX}) {
    auto wide = make_rectangle(small_list(), width);
    ASSERT_FALSE(wide.ok());
    EXPECT_EQ(wide.error().kind, ErrorKind::limit);
    EXPECT_EQ(wide.error().message,
              "[rectangle] a rectangle may have 214748364 cells in 268435456 "
              "rows, found 1 lists of 2 rows, " +
                  std::to_string(width) + " wide");
  }
}

TEST(Rectangle, HostileRectanglesAreRefused) {
  const Rectangle good = *make_rectangle(small_list(), 3);
  EXPECT_EQ(error_of(good, 4), "no error");
  EXPECT_EQ(error_of(good, 3),
            "[rectangle] columns must ascend below 3, found 3 after 0 for cell "
            "1 of row 0");
  EXPECT_EQ(error_of(good, -1),
            "[rectangle] columns must be between 0 and 268435456, found -1");
  Rectangle r = good;
  r.tile_class[1] = 3;
  EXPECT_EQ(error_of(r, 4),
            "[rectangle] classes must be 0, 1 or 2, found 3 for cell 1 of row "
            "0");
  r = good;
  r.tile_class[0] = 0;
  EXPECT_EQ(error_of(r, 4),
            "[rectangle] after class 0 all cells of a row must be class 0 and "
            "column 0, found class 1 and column 3 for cell 1 of row 0");
  r = good;
  r.column[5] = 1;
  EXPECT_EQ(error_of(r, 4),
            "[rectangle] after class 0 all cells of a row must be class 0 and "
            "column 0, found class 0 and column 1 for cell 2 of row 1");
  r = good;
  r.column[0] = -1;
  EXPECT_EQ(error_of(r, 4),
            "[rectangle] columns must ascend below 4, found -1 after -1 for "
            "cell 0 of row 0");
  r = good;
  r.column[1] = 0;
  EXPECT_EQ(error_of(r, 4),
            "[rectangle] columns must ascend below 4, found 0 after 0 for cell "
            "1 of row 0");
  r = good;
  r.column.pop_back();
  EXPECT_EQ(error_of(r, 4),
            "[rectangle] columns and classes must be 6 each, found 5 and 6");
  for (int64_t n : {int64_t{-1}, kMaxTiles + 1, INT64_MAX, INT64_MIN}) {
    r = good;
    r.lists = n;
    EXPECT_FALSE(list_from_rectangle(r, 4).ok()) << n;
    r = good;
    r.rows = n;
    EXPECT_FALSE(list_from_rectangle(r, 4).ok()) << n;
    r = good;
    r.width = n;
    EXPECT_FALSE(list_from_rectangle(r, 4).ok()) << n;
  }
}

}  // namespace
}  // namespace tessera::plan
