// plan/launches_test.cc: launches cover every step once and fit.
#include <gtest/gtest.h>

#include "plan/steps.h"
#include "tessera/machine.h"
#include "tests/random_worklist.h"

namespace tessera::plan {
namespace {

using testing::for_seeds;
using testing::random_int;
using testing::random_plan;

// Lists of rows with the given numbers of steps.
Steps steps_of(const std::vector<std::vector<int>>& lists) {
  Steps s;
  s.range.push_back(0);
  for (const auto& rows : lists) {
    for (size_t r = 0; r < rows.size(); ++r) {
      for (int i = 0; i < rows[r]; ++i) {
        s.steps.push_back({static_cast<uint32_t>(r) << 18 |
                           static_cast<uint32_t>(i) << 4 | 1 << 2 |
                           (i == 0 ? 2u : 0u) | (i + 1 == rows[r] ? 1u : 0u)});
      }
    }
    s.range.push_back(static_cast<uint32_t>(s.steps.size()));
  }
  return s;
}

std::string error_of(const Steps& s, const Target& t) {
  auto r = split_launches(s, t);
  return r.ok() ? "no error" : r.error().message;
}

TEST(Target, OnlyMeasuredOnesAreKnown) {
  auto v6e = find_target("v6e");
  ASSERT_TRUE(v6e.ok());
  EXPECT_EQ(v6e->scalar_words, 261376);
  EXPECT_EQ(v6e->granule, 128);
  EXPECT_EQ(v6e->vector_bytes, 128 << 20);
  for (const Chip& chip : chips()) EXPECT_TRUE(find_target(chip.name).ok());
  for (const char* name : {"v3", "v5", "", "V6E", "v6e "}) {
    auto t = find_target(name);
    ASSERT_FALSE(t.ok());
    EXPECT_EQ(t.error().message,
              std::string("[target] target must be one of those whose memory "
                          "is known (v4, v5e, v5p, v6e, tpu7x), found '") +
                  name + "'");
  }
}

TEST(Launches, CutAtRowsByHand) {
  // 3 + 2 steps, then 4: 9 steps, 3 range words, 2 bounds and 2 offsets in one
  // launch.
  const Steps s = steps_of({{3, 2}, {4}});
  auto one = split_launches(s, {"t", 16});
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(*one, (std::vector<Launch>{{0, 9, 0, 2}}));
  auto two = split_launches(s, {"t", 15});
  ASSERT_TRUE(two.ok());
  EXPECT_EQ(*two, (std::vector<Launch>{{0, 5, 0, 1}, {5, 9, 1, 2}}));
  auto three = split_launches(s, {"t", 9});
  ASSERT_TRUE(three.ok());
  EXPECT_EQ(*three,
            (std::vector<Launch>{{0, 3, 0, 1}, {3, 5, 0, 1}, {5, 9, 1, 2}}));
  EXPECT_EQ(error_of(s, {"t", 8}),
            "[launches] the steps of one row must fit the 8 scalar words of t, "
            "found 9 words for row 0 of list 1");
}

// Recounts each launch's words from its steps and ranges.
TEST(Launches, CoverEveryStepOnceInOrderAndFit) {
  for_seeds(1000, [](std::mt19937_64& random, uint64_t) {
    const Plan p = random_plan(random);
    auto steps = steps_of_plan(p, random_int(random, 0, 1) == 0);
    ASSERT_TRUE(steps.ok());
    const Target target{"t", random_int(random, 6, 60)};
    int64_t widest = 0;
    int64_t row = 0;
    for (const Step& s : steps->steps) {
      ++row;
      widest = std::max(widest, row);
      if (s.last()) row = 0;
    }
    auto launches = split_launches(*steps, target);
    ASSERT_EQ(launches.ok(), widest + 5 <= target.scalar_words);
    if (!launches.ok()) {
      EXPECT_EQ(launches.error().kind, ErrorKind::limit);
      return;
    }
    const auto list_of = [&](int64_t at) {
      int64_t l = 0;
      while (steps->range[static_cast<size_t>(l) + 1] <= at) ++l;
      return l;
    };
    int64_t at = 0;
    for (size_t i = 0; i < launches->size(); ++i) {
      const Launch& l = (*launches)[i];
      EXPECT_EQ(l.begin, at);
      ASSERT_LT(l.begin, l.end);
      EXPECT_EQ(l.first_list, list_of(l.begin));
      EXPECT_EQ(l.end_list, list_of(l.end - 1) + 1);
      int64_t words = 3;
      for (int64_t k = l.first_list; k < l.end_list; ++k) words += 2;
      for (int64_t k = l.begin; k < l.end; ++k) ++words;
      EXPECT_LE(words, target.scalar_words);
      EXPECT_TRUE(steps->steps[static_cast<size_t>(l.begin)].first());
      EXPECT_TRUE(steps->steps[static_cast<size_t>(l.end - 1)].last());
      // The next row would not have fit.
      if (i + 1 < launches->size()) {
        int64_t next = l.end;
        while (!steps->steps[static_cast<size_t>(next)].last()) ++next;
        const int64_t grown =
            next + 1 - l.begin + 2 * (list_of(next) + 1 - l.first_list) + 3;
        EXPECT_GT(grown, target.scalar_words);
      }
      at = l.end;
    }
    EXPECT_EQ(at, static_cast<int64_t>(steps->steps.size()));
  });
}

// Both sides of the measured budget: 15 rows of 16,384 steps, and one row that
// fills the rest exactly or has one step more.
TEST(Launches, TheV6eBudgetIsExact) {
  const auto v6e = find_target("v6e");
  ASSERT_TRUE(v6e.ok());
  std::vector<int> rows(15, 16384);
  rows.push_back(static_cast<int>(261376 - 2 * 128 - 15 * 16384));
  auto fits = split_launches(steps_of({rows}), *v6e);
  ASSERT_TRUE(fits.ok());
  ASSERT_EQ(fits->size(), 1u);
  EXPECT_EQ((*fits)[0].words(*v6e), 261376);
  ++rows.back();
  auto over = split_launches(steps_of({rows}), *v6e);
  ASSERT_TRUE(over.ok());
  ASSERT_EQ(over->size(), 2u);
  EXPECT_EQ((*over)[0].end, 15 * 16384);
}

TEST(Launches, StepsThatAreNoneAreRefused) {
  EXPECT_EQ(error_of({}, {"t", 9}),
            "[launches] ranges must rise from 0 to 0 steps, found none");
  Steps s = steps_of({{2}, {2}});
  s.steps[1].word &= ~1u;
  EXPECT_EQ(error_of(s, {"t", 9}),
            "[launches] a list must end with a step marked last, found step 1 "
            "for list 0");
  s.range[1] = 7;
  EXPECT_EQ(error_of(s, {"t", 9}),
            "[launches] ranges must rise from 0 to 4 steps, found 4");
  EXPECT_EQ(error_of(steps_of({{1}}), {"t", -1}),
            "[launches] the steps of one row must fit the -1 scalar words of "
            "t, found 6 words for row 0 of list 0");
  EXPECT_EQ(split_launches(steps_of({}), {"t", 9})->size(), 0u);
}

}  // namespace
}  // namespace tessera::plan
