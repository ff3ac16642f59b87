// schedule/attention_test.cc: pipelines around attention steps, made by hand.
#include "schedule/attention.h"

#include <gtest/gtest.h>

#include "plan/make_plan.h"
#include "schedule/predict.h"
#include "tests/schedule_text.h"

namespace tessera::schedule {
namespace {

Window window(std::vector<int64_t> shape, std::vector<int64_t> full,
              int64_t operand) {
  return {false, operand, "bf16", std::move(shape), std::move(full)};
}

// A grid's loop of bundles 5 to 45. In it is a guard, bundles 13 to 38, of
// which 19 to 22 are the first of a row and 35 to 36 the last. The products are
// in the guard itself, as if every step had work.
KernelText unconditional(std::vector<int64_t> grid) {
  auto lines = empty_lines(50);
  lines[5].comment = "Start region 10";
  lines[8] = {"%1 = sbr.rel (%p1) target = $region20"};
  lines[14] = {"%2 = sbr.rel (%p2) target = $region21"};
  lines[22].comment = "Start/End empty region 21";
  lines[25].used[kMatmul] = lines[28].used[kMatmul] = 2;
  lines[30] = {"%3 = sbr.rel (%p3) target = $region22"};
  lines[36].comment = "Start/End empty region 22";
  lines[38].comment = "Start/End empty region 20";
  lines[40] = {"%4 = sbr.rel (%p4) target = $region10"};
  KernelText out = *parse_lines(lines);
  out.bundles[5].pipeline = true;
  out.grid = std::move(grid);
  return out;
}

using Roles = std::vector<RoleTrips>;

TEST(ScheduleAttention, FollowsStepsWithoutACondition) {
  KernelText text = unconditional({3, 2, 64});
  text.windows = {window({1, 1, 256, 128}, {3, 2, 2048, 128}, 0),
                  window({1, 1, 256, 128}, {3, 2, 2048, 128}, 1)};
  const auto profile = *profile_kernel(text, *find_chip("v6e"));
  const auto found = attention_trips(profile, {64, 0, 64, 8, 8});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->heads, 6);
  EXPECT_EQ(found->grid_steps, 384);
  EXPECT_EQ(found->dead_steps, 0);
  EXPECT_EQ(found->rows, 48);
  EXPECT_EQ(found->regions, (Roles{{1, 386, Role::grid},
                                   {2, 384, Role::compute},
                                   {3, 48, Role::first},
                                   {4, 48, Role::last}}));
  // 36 active tiles per head: the other steps do useless work.
  const auto causal = attention_trips(profile, {36, 8, 28, 8, 8});
  ASSERT_TRUE(causal.has_value());
  EXPECT_EQ(causal->dead_steps, 384 - 6 * 36);
  EXPECT_EQ(causal->regions[1].trips, 384);
  EXPECT_FALSE(attention_trips(profile, {65, 0, 65, 8, 8}).has_value());
}

TEST(ScheduleAttention, AGridIsOfActiveTilesOrOfRowsAndColumns) {
  KernelText text = unconditional({6, 8, 8});
  text.windows = {window({1, 256, 128}, {6, 2048, 128}, 0),
                  window({1, 256, 128}, {6, 2048, 128}, 1)};
  const auto rows = attention_trips(*profile_kernel(text, *find_chip("v6e")),
                                    {64, 0, 64, 8, 8});
  ASSERT_TRUE(rows.has_value());
  EXPECT_EQ(rows->rows, 48);
  text.grid = {6, -1};
  const auto list = attention_trips(*profile_kernel(text, *find_chip("v6e")),
                                    {36, 8, 28, 8, 7});
  ASSERT_TRUE(list.has_value());
  EXPECT_EQ(list->grid_steps, 6 * 36);
  EXPECT_EQ(list->rows, 42);
  for (const std::vector<int64_t>& other :
       {std::vector<int64_t>{}, {216}, {6, 2, 2, 9}}) {
    text.grid = other;
    EXPECT_FALSE(attention_trips(*profile_kernel(text, *find_chip("v6e")),
                                 {36, 8, 28, 8, 8})
                     .has_value());
  }
}

TEST(ScheduleAttention, TokensMayBeEitherOfTheLastTwoDimensions) {
  KernelText text;
  const auto blocks = [&](int64_t q_len, int64_t kv_len) {
    return kernel_blocks(text, q_len, kv_len);
  };
  EXPECT_EQ(blocks(4096, 4096), std::nullopt);
  text.windows = {window({1, 128, 512}, {8, 128, 4096}, 0),
                  window({1, 1, 256, 128}, {2, 4, 2048, 128}, 1)};
  EXPECT_EQ(blocks(4096, 2048), (Tile{512, 256}));
  EXPECT_EQ(blocks(2048, 4096), std::nullopt);
  EXPECT_EQ(blocks(128, 2048), std::nullopt);  // tokens are in blocks
  // If either dimension could be the head dim, the last one is.
  text.windows = {window({1, 16, 128}, {2, 128, 128}, 0),
                  window({1, 128, 128}, {2, 128, 128}, 1)};
  EXPECT_EQ(blocks(128, 128), (Tile{16, 128}));
  text.windows[0] = window({1, 128, 64}, {2, 128, 128}, 0);
  EXPECT_EQ(blocks(128, 128), (Tile{64, 128}));
}

TEST(ScheduleAttention, CountsAPlan) {
  Request request;
  request.masks = {*parse_mask("causal")};
  request.q_len = request.kv_len = 1024;
  request.tile = {256, 256};
  const auto plan = plan::make_plan(request, {});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(count_plan(*plan), (PlanCounts{10, 4, 6, 4, 4}));
}

// A pipeline that is not attention: two iterations fill and drain it.
TEST(SchedulePredict, APipelineDoesNoMoreStepsThanItsGridHas) {
  KernelText text = unconditional({4, 8});
  text.bundles[9].transfers = {{937, true, false, true, true}};
  text.bundles[40].branch->limit = 34;
  const auto profile = *profile_kernel(text, *find_chip("v6e"));
  const auto out = predict(profile, *find_chip("v6e"), {}, {});
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(out->regions[1].trips, 34);
  EXPECT_EQ(out->regions[2].trips, 32);
  // 937 granules per step, and 937 bytes per cycle.
  EXPECT_EQ(out->regions[1].memory_cycles, 32 * 32);
  text.grid = {4, -1};
  const auto unknown = predict(*profile_kernel(text, *find_chip("v6e")),
                               *find_chip("v6e"), {}, {});
  EXPECT_EQ(unknown->regions[2].trips, 34);
}

TEST(SchedulePredict, LoopsOfUnknownTripsCountOnceBesideTheSum) {
  KernelText text = unconditional({4, 8});
  const auto profile = *profile_kernel(text, *find_chip("v6e"));
  const auto out = predict(profile, *find_chip("v6e"), {}, {});
  ASSERT_TRUE(out.ok());
  EXPECT_FALSE(out->cycles.has_value());
  EXPECT_EQ(out->unknown, (std::vector<int64_t>{1}));
  EXPECT_EQ(out->cycles_loops_once, 50);
}

}  // namespace
}  // namespace tessera::schedule
