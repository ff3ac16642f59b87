// schedule/profile_test.cc: regions, sums and predictions, counted by hand.
#include "schedule/profile.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "schedule/predict.h"
#include "tessera/machine.h"
#include "tests/schedule_text.h"

namespace tessera::schedule {
namespace {

constexpr int64_t kDelay = 4;

Chip chip() { return *find_chip("v6e:1x1"); }

std::string golden(const char* name) {
  return *read_file(std::string("tests/golden/schedule/") + name, 1 << 20);
}

KernelProfile triangle() {
  return *profile_kernel(
      *parse_kernel("triangle.1", golden("triangle-bundles.txt"),
                    golden("triangle-slots.txt")),
      chip());
}

std::vector<std::string> paths(const RegionTree& tree) {
  std::vector<std::string> out;
  for (const Region& r : tree.regions) {
    out.push_back(fmt::format("{} {}-{}", r.path, r.begin, r.end));
  }
  return out;
}

// A kernel of 60 bundles: a loop with a branch and, in it, a constant loop;
// then an if with an else.
std::vector<BundleLine> nested_lines() {
  auto lines = empty_lines(60);
  lines[2] = {"%1 = sbr.rel (%p1) target = $region90"};  // skips the loop
  lines[7].comment = "Start region 10";
  lines[9] = {"%2 = sbr.rel (%p2) target = $region11"};
  lines[13] = {"%s1 = smov.u32 0"};
  lines[15] = {"%s2 = sphi %s1, %s3", "Start region 12"};
  lines[16] = {
      "%s3 = sadd.s32 1, %s2  ;;  %p3 = scmp.ge.s32.totalorder %s3, 8"};
  lines[17] = {"%3 = sbr.rel (!%p3) target = $region12"};
  lines[24].comment = "Start/End empty region 11";
  lines[25] = {"%4 = sbr.rel (%p4) target = $region10"};
  lines[30].comment = "Start/End empty region 90";
  lines[31] = {"%5 = sbr.rel (%p5) target = $region20"};
  lines[39] = {"%6 = sbr.rel target = $region21"};
  lines[44].comment = "Start region 20";
  lines[50].comment = "Start region 21";
  return lines;
}

TEST(ScheduleRegions, FollowsJumps) {
  const auto tree = find_regions(*parse_lines(nested_lines()), kDelay);
  ASSERT_TRUE(tree.ok()) << tree.error().message;
  // A branch around just the loop is no region of its own.
  EXPECT_EQ(paths(*tree),
            (std::vector<std::string>{" 0-60", "loop0 7-30", "loop0/if0 14-24",
                                      "loop0/if0/loop0 15-22", "if0 36-44",
                                      "if1 44-50"}));
  EXPECT_EQ(tree->regions[3].limit, 8);
  EXPECT_EQ(tree->regions[1].limit, std::nullopt);
  EXPECT_EQ(tree->irregular, 0);
  for (const auto& [bundle, region] : {std::pair(6, 0),
                                       {7, 1},
                                       {13, 1},
                                       {14, 2},
                                       {15, 3},
                                       {21, 3},
                                       {22, 2},
                                       {24, 1},
                                       {29, 1},
                                       {30, 0},
                                       {35, 0},
                                       {36, 4},
                                       {44, 5},
                                       {50, 0}}) {
    EXPECT_EQ(tree->innermost[static_cast<size_t>(bundle)],
              static_cast<uint32_t>(region))
        << bundle;
  }
}

TEST(ScheduleRegions, NamesThemByTheirSource) {
  auto lines = nested_lines();
  lines[14].ops =
      "%v1 = vadd /* loc(\"full_tile\":1:1) */  ;;  "
      "%v2 = vadd /* loc(\"full_tile\":2:1) */  ;;  "
      "%v3 = vadd /* loc(\"other\":2:1) */";
  lines[40].ops = "%v4 = vadd /* loc(\"dir/a.py\":7:1) */";
  const auto tree = find_regions(*parse_lines(lines), kDelay);
  ASSERT_TRUE(tree.ok());
  EXPECT_EQ(tree->regions[2].name, "full_tile");
  EXPECT_EQ(tree->regions[4].name, "");
  EXPECT_EQ(tree->regions[4].source, "a.py:7");
}

TEST(ScheduleRegions, CutsWhatDoesNotNest) {
  auto lines = empty_lines(40);
  lines[0] = {"sbr.rel (%p1) target = $region1"};
  lines[2] = {"sbr.rel (%p1) target = $region2"};
  lines[20].comment = "Start region 1";
  lines[30].comment = "Start region 2";
  const auto tree = find_regions(*parse_lines(lines), kDelay);
  ASSERT_TRUE(tree.ok());
  EXPECT_EQ(paths(*tree),
            (std::vector<std::string>{" 0-40", "if0 5-20", "if0/if0 7-20"}));
  EXPECT_EQ(tree->irregular, 1);
}

TEST(ScheduleRegions, RefusesLostJumpsAndDeepNests) {
  auto lines = empty_lines(8);
  lines[1] = {"sbr.rel (%p1) target = $region3"};
  const auto lost = find_regions(*parse_lines(lines), kDelay);
  ASSERT_FALSE(lost.ok());
  EXPECT_NE(lost.error().message.find("number 3 for bundle 0x1"),
            std::string::npos);
  lines = empty_lines(400);
  lines[399].comment = "Start region 1";
  for (size_t i = 0; i < 100; ++i) {
    lines[i] = {"sbr.rel (%p1) target = $region1"};
  }
  const auto deep = find_regions(*parse_lines(lines), kDelay);
  ASSERT_FALSE(deep.ok());
  EXPECT_EQ(deep.error().kind, ErrorKind::limit);
}

TEST(ScheduleProfile, SumsSlotsOfItsOwnBundles) {
  auto lines = nested_lines();
  lines[14].used = {2, 0, 0, 4, 0, 0, 3, 1, 0, 0, 0};
  lines[23].used = {1, 0, 0, 4, 0, 0, 3, 2, 2, 1, 0};
  lines[16].used = {0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0};
  lines[23].ops =
      "%9 = dma.hbm_to_vmem /*size_in_granules=*/10  ;;  "
      "%10 = dma.vmem_to_hbm /*size_in_granules=*/%s3  ;;  "
      "%11 = dma.hbm_to_hbm /*size_in_granules=*/1";
  const auto p = profile_kernel(*parse_lines(lines), chip());
  ASSERT_TRUE(p.ok()) << p.error().message;
  const RegionCost& branch = p->own[2];
  EXPECT_EQ(branch.bundles, 3);  // 14, 22, 23
  EXPECT_EQ(branch.used, (SlotCounts{3, 0, 0, 8, 0, 0, 6, 3, 2, 1, 0}));
  // ceil(3 / 2), 8 / 4 and 6 / 3 are all 2; the first slot is the bound.
  EXPECT_EQ(branch.bound, 2);
  EXPECT_EQ(branch.bound_slot, kMatmul);
  EXPECT_DOUBLE_EQ(branch.distance(), 1.5);
  EXPECT_EQ(branch.transfers, 3);
  EXPECT_EQ(branch.bytes, 320 + 64);
  EXPECT_EQ(branch.unknown_sizes, 1);
  EXPECT_EQ(p->whole[2].bundles, 10);
  EXPECT_EQ(p->whole[2].used[kEup], 1);
  EXPECT_EQ(p->whole[1].bundles, 23);
  EXPECT_EQ(p->own[1].bundles, 13);
  EXPECT_EQ(p->whole[0].bundles, 60);
  EXPECT_EQ(p->own[0].bundles, 60 - 23 - 8 - 6);
}

TEST(ScheduleProfile, OfTheVendorsDump) {
  const KernelProfile p = triangle();
  EXPECT_EQ(paths(p.tree), (std::vector<std::string>{
                               " 0-154", "loop0 15-148", "loop0/if0 61-130",
                               "loop0/if0/if0 73-75", "loop0/if0/if1 83-110",
                               "loop0/if0/if2 117-120"}));
  EXPECT_TRUE(p.tree.regions[1].grid);
  EXPECT_EQ(p.tree.regions[1].name, "grid");
  const auto bundles = [&](size_t r) { return p.own[r].bundles; };
  EXPECT_EQ(bundles(0), 21);
  EXPECT_EQ(bundles(1), 64);
  EXPECT_EQ(bundles(2), 37);
  EXPECT_EQ(bundles(3), 2);
  EXPECT_EQ(bundles(4), 27);
  EXPECT_EQ(bundles(5), 3);
  // Every slot of the table is in one region.
  SlotCounts sum{};
  for (const Bundle& b : p.text.bundles) {
    for (size_t s = 0; s < kSlots; ++s) sum[s] += b.used[s];
  }
  EXPECT_EQ(p.whole[0].used, sum);
}

TEST(SchedulePredict, KnowsChips) {
  EXPECT_EQ(find_chip("v6e")->name, "v6e");
  EXPECT_EQ(find_chip("v6e:4x4")->hbm_bytes_per_cycle, 937);
  for (const tessera::Chip& known : chips()) {
    const auto c = find_chip(known.target);
    ASSERT_TRUE(c.ok()) << c.error().message;
    EXPECT_EQ(c->name, known.name);
    EXPECT_EQ(c->calibration.has_value(),
              known.name == "v6e" || known.name == "tpu7x");
  }
  for (const char* other : {"", "v6", "v6e2", "v99:2x2x1", "v6e 1x1"}) {
    const auto c = find_chip(other);
    ASSERT_FALSE(c.ok()) << other;
    EXPECT_TRUE(c.error().message.starts_with("[schedule] a target must be"));
  }
  const auto none = find_chip("v6e:0x1");
  ASSERT_FALSE(none.ok());
  EXPECT_TRUE(none.error().message.starts_with("[schedule] sides of a target"));
}

TEST(SchedulePredict, CalibrationsAreThoseOfTheirResults) {
  for (const tessera::Chip& known : chips()) {
    const std::string file =
        fmt::format("bench/results/{}/silicon.json", known.name);
    const auto text = read_file(file, 1 << 20);
    const auto chip = find_chip(known.target);
    ASSERT_EQ(chip->calibration.has_value(), text.ok()) << known.name;
    if (!text) continue;
    const auto all = nlohmann::json::parse(*text).at("all");
    EXPECT_EQ(chip->calibration->median, all.at("bias"));
    EXPECT_EQ(chip->calibration->p5, all.at("p5"));
    EXPECT_EQ(chip->calibration->p95, all.at("p95"));
  }
}

TEST(SchedulePredict, FollowsAPlanThroughThePipeline) {
  const KernelProfile p = triangle();
  EXPECT_EQ(kernel_blocks(p.text, 64, 512), (Tile{16, 128}));
  const PlanCounts counts{10, 4, 6, 4, 4};
  const auto out = predict(p, chip(), {}, counts);
  ASSERT_TRUE(out.ok()) << out.error().message;
  EXPECT_TRUE(out->attention);
  EXPECT_EQ(out->heads, 2);
  EXPECT_EQ(out->grid_steps, 32);
  EXPECT_EQ(out->dead_steps, 32 - 20);
  EXPECT_EQ(out->dead_cycles, 12 * (64 + 37));
  const std::vector<std::pair<double, Role>> expected = {
      {1, Role::none},  {34, Role::grid},    {32, Role::step},
      {8, Role::first}, {20, Role::compute}, {8, Role::last}};
  for (size_t r = 0; r < expected.size(); ++r) {
    EXPECT_EQ(out->regions[r].trips, expected[r].first) << r;
    EXPECT_EQ(out->regions[r].role, expected[r].second) << r;
  }
  // Windows: two inputs per active step, one output per row.
  EXPECT_DOUBLE_EQ(out->regions[1].memory_cycles, 20 * 36864 / 937.0);
  EXPECT_DOUBLE_EQ(out->regions[2].memory_cycles, 8 * 4096 / 937.0);
  EXPECT_EQ(out->cycles, 21 + 34 * 64 + 32 * 37 + 8 * 2 + 20 * 27 + 8 * 3);
}

TEST(SchedulePredict, WithoutAPlanTakesEveryBranch) {
  const auto out = predict(triangle(), chip(), {}, {});
  ASSERT_TRUE(out.ok());
  EXPECT_FALSE(out->attention);
  EXPECT_EQ(out->regions[1].source, TripSource::constant);
  EXPECT_EQ(out->assumed, (std::vector<int64_t>{2, 3, 4, 5}));
  // The grid's loop has 34 iterations, two more than its 32 steps.
  EXPECT_EQ(out->cycles, 21 + 34 * 64 + 32 * (37 + 2 + 27 + 3));
}

TEST(SchedulePredict, APlanOfMoreStepsThanTheGridIsNotOfIt) {
  const auto out = predict(triangle(), chip(), {}, PlanCounts{17, 0, 17, 4, 4});
  ASSERT_TRUE(out.ok());
  EXPECT_FALSE(out->attention);
}

TEST(SchedulePredict, FollowsRules) {
  const auto lines = nested_lines();
  const auto p = profile_kernel(*parse_lines(lines), chip());
  auto out = predict(*p, chip(), {}, {});
  ASSERT_TRUE(out.ok());
  EXPECT_FALSE(out->cycles.has_value());
  EXPECT_EQ(out->unknown, (std::vector<int64_t>{1}));
  // 23 bundles outside and 8 in an if; 13 in the loop, 3 in its branch, 7 in
  // the inner loop.
  const std::vector<TripRule> rules = {{"loop0", 100}, {"k:if1", 0}};
  out = predict(*p, chip(), rules, {});
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(out->regions[3].trips, 800);
  EXPECT_EQ(out->regions[3].source, TripSource::constant);
  EXPECT_EQ(out->regions[4].source, TripSource::assumed);
  EXPECT_EQ(out->cycles, 23 + 8 + 100 * (13 + 3) + 800 * 7);
  out = predict(*p, chip(), std::vector<TripRule>{{"loop0", -1}}, {});
  EXPECT_FALSE(out.ok());
}

// If the region is a loop, a rule may give other trips, or may apply to loops
// only.
TEST(SchedulePredict, RulesMayTellLoopsFromBranches) {
  const auto p = profile_kernel(*parse_lines(nested_lines()), chip());
  const std::vector<TripRule> rules = {{"loop0", 7, 9},
                                       {"loop0/if0", 5, 8, RegionKind::loop}};
  Chip other = chip();
  other.counts_whole_loops = true;
  const auto out = predict(*p, other, rules, {});
  ASSERT_TRUE(out.ok());
  const auto v6e = predict(*p, chip(), rules, {});
  ASSERT_TRUE(v6e.ok());
  for (size_t r = 0; r < p->tree.regions.size(); ++r) {
    if (p->tree.regions[r].path == "loop0") {
      EXPECT_EQ(out->regions[r].trips, 9);
      EXPECT_EQ(v6e->regions[r].trips, 7);
    } else if (p->tree.regions[r].path == "loop0/if0") {
      EXPECT_EQ(out->regions[r].source, TripSource::assumed);
    }
  }
}

// Each of several regions with one name may have a rule of its own.
TEST(SchedulePredict, RulesMayTellRegionsOfANameApart) {
  auto p = *profile_kernel(*parse_lines(nested_lines()), chip());
  // A loop, in it a branch and a loop, and two branches after it.
  for (Region& r : p.tree.regions) r.name = "row";
  const std::vector<TripRule> rules = {
      {"row", 7, {}, RegionKind::loop, {}, "row"},
      {"row", 5, {}, RegionKind::branch, "row"},
      {"row", 40, {}, RegionKind::loop, "row"},
      {"loop0", 9, {}, RegionKind::branch}};
  const auto check = [&](const TripRule& rule) {
    return check_rules({&p, 1}, {&rule, 1}).ok();
  };
  for (const TripRule& rule : rules) {
    EXPECT_EQ(check(rule), rule.region == "row") << rule.trips;
  }
  EXPECT_FALSE(check({"row", 1}));
  EXPECT_FALSE(check({"row", 1, {}, RegionKind::loop}));
  const auto out = predict(p, chip(), rules, {});
  ASSERT_TRUE(out.ok()) << out.error().message;
  EXPECT_EQ(out->regions[1].trips, 7);
  EXPECT_EQ(out->regions[2].trips, 5);
  EXPECT_EQ(out->regions[3].trips, 40);
  for (const size_t other : {4, 5}) {
    EXPECT_EQ(out->regions[other].source, TripSource::assumed);
  }
}

// A loop within a branch that never runs needs no rule.
TEST(SchedulePredict, WhatNeverRunsHoldsNoLoopThatDoes) {
  auto lines = nested_lines();
  lines[16] = {
      "%s3 = sadd.s32 1, %s2  ;;  %p3 = scmp.ge.s32.totalorder %s3, %s9"};
  const auto p = profile_kernel(*parse_lines(lines), chip());
  for (const double trips : {0, 1}) {
    const std::vector<TripRule> rules = {{"loop0", 7}, {"loop0/if0", trips}};
    const auto out = predict(*p, chip(), rules, {});
    ASSERT_TRUE(out.ok()) << out.error().message;
    EXPECT_EQ(out->unknown.empty(), trips == 0);
    EXPECT_EQ(out->cycles.has_value(), trips == 0);
    EXPECT_EQ(p->tree.regions[3].path, "loop0/if0/loop0");
    EXPECT_EQ(out->regions[3].trips, trips);
  }
}

// v4 has another size of granule.
TEST(ScheduleProfile, BytesAreThoseOfTheChipsGranules) {
  auto lines = nested_lines();
  lines[14].ops = "%9 = dma.hbm_to_vmem /*size_in_granules=*/10";
  const auto p = profile_kernel(*parse_lines(lines), chip());
  const auto v4 = profile_kernel(*parse_lines(lines), *find_chip("v4"));
  ASSERT_TRUE(p.ok() && v4.ok());
  EXPECT_EQ(p->whole[0].bytes, 320);
  EXPECT_EQ(v4->whole[0].bytes, 5120);
}

TEST(SchedulePredict, TakesTheLargerOfBundlesAndMemoryOfEachLoop) {
  auto lines = nested_lines();
  lines[14].ops = "%9 = dma.hbm_to_vmem /*size_in_granules=*/9370";  // 320
  const auto p = profile_kernel(*parse_lines(lines), chip());
  const std::vector<TripRule> rules = {{"loop0", 100}, {"loop0/if0", 10}};
  const auto out = predict(*p, chip(), rules, {});
  ASSERT_TRUE(out.ok());
  // 13 x 100 + 3 x 10 bundles against 10 x 320 cycles of memory.
  EXPECT_DOUBLE_EQ(*out->cycles, 37 + 3200 + 80 * 7);
}

TEST(SchedulePredict, RulesMustMeanOneRegion) {
  const std::vector<KernelProfile> profiles = {
      triangle(), *profile_kernel(*parse_lines(nested_lines()), chip())};
  const auto error = [&](const char* region) -> std::string {
    const auto r = check_rules(profiles, std::vector<TripRule>{{region, 1}});
    return r.ok() ? "" : r.error().message;
  };
  EXPECT_EQ(error("grid"), "");
  EXPECT_EQ(error("triangle:loop0"), "");
  EXPECT_EQ(error("triangle.1:loop0"), "");
  EXPECT_NE(error("loop0").find("found triangle.1:loop0, k.1:loop0"),
            std::string::npos);
  EXPECT_NE(error("nothing").find("found none for 'nothing'"),
            std::string::npos);
  EXPECT_NE(error("tri:loop0"), "");
}

}  // namespace
}  // namespace tessera::schedule
