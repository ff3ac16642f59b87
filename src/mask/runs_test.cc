// mask/runs_test.cc: runs, links and counts against plain loops.
#include "mask/runs.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace tessera::mask {
namespace {

std::vector<int32_t> random_ids(std::mt19937_64& engine) {
  std::vector<int32_t> ids(1 + engine() % 400);
  const auto kinds = static_cast<int32_t>(1 + engine() % 6);
  const bool rising = engine() % 3 == 0;
  int32_t id = 0;
  for (int32_t& out : ids) {
    if (engine() % 5 == 0) {
      id = rising ? id + 1 : static_cast<int32_t>(engine() % kinds) - 1;
    }
    out = id;
  }
  if (engine() % 3 == 0) {
    const size_t padding = engine() % ids.size();
    std::fill(ids.end() - static_cast<std::ptrdiff_t>(padding), ids.end(), -1);
  }
  return ids;
}

TEST(Runs, AgreeWithPlainLoops) {
  IdRuns runs;  // reused, as the planner does
  ColumnCounts counts;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    std::mt19937_64 engine(seed);
    const std::vector<int32_t> ids = random_ids(engine);
    const auto n = static_cast<int64_t>(ids.size());
    find_runs(ids.data(), n, runs);
    link_runs(runs);

    ASSERT_EQ(runs.start.front(), 0);
    ASSERT_EQ(runs.start.back(), n);
    std::map<int32_t, std::vector<int64_t>> runs_of;
    for (int64_t r = 0; r < runs.count(); ++r) {
      for (int32_t k = runs.start[r]; k < runs.start[r + 1]; ++k) {
        ASSERT_EQ(ids[static_cast<size_t>(k)], runs.id[r]);
      }
      if (r > 0) {
        ASSERT_NE(runs.id[r], runs.id[r - 1]);
      }
      runs_of[runs.id[r]].push_back(r);
    }
    bool repeated = false;
    for (const auto& [id, of] : runs_of) repeated |= of.size() > 1;
    if (repeated) {
      ASSERT_FALSE(runs.distinct);
    }

    for (const auto& [id, of] : runs_of) {
      if (id < 0 && runs.distinct) continue;  // padding is never looked up
      const Interval places = places_of_id(runs, id);
      ASSERT_EQ(places.end - places.begin, static_cast<int64_t>(of.size()));
      int64_t before = 0;
      for (size_t i = 0; i < of.size(); ++i) {
        const int64_t place = places.begin + static_cast<int64_t>(i);
        ASSERT_EQ(runs.distinct ? place : runs.order[place], of[i]);
        if (!runs.distinct) {
          ASSERT_EQ(runs.before[place], before);
        }
        before += runs.start[of[i] + 1] - runs.start[of[i]];
        ASSERT_EQ(places_of_run(runs, of[i]).begin, places.begin);
      }
    }
    ASSERT_EQ(places_of_id(runs, 1000000).end,
              places_of_id(runs, 1000000).begin);

    if (runs.distinct) continue;
    const auto block = static_cast<int64_t>(1 + engine() % 50);
    count_columns(runs, block, counts);
    for (const auto& [id, of] : runs_of) {
      std::map<int64_t, int64_t> expected;
      for (int64_t k = 0; k < n; ++k) {
        if (ids[static_cast<size_t>(k)] == id) ++expected[k / block];
      }
      std::map<int64_t, int64_t> found;
      for (const auto& c : counts.of(places_of_id(runs, id))) {
        ASSERT_TRUE(found.emplace(c.column, c.keys).second);
      }
      ASSERT_EQ(found, expected);
    }
    std::vector<int32_t> negative(static_cast<size_t>((n + block - 1) / block));
    for (int64_t k = 0; k < n; ++k) {
      negative[static_cast<size_t>(k / block)] +=
          ids[static_cast<size_t>(k)] < 0;
    }
    ASSERT_EQ(counts.negative, negative);
  }
}

}  // namespace
}  // namespace tessera::mask
