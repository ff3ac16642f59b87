// schedule/stalls_test.cc: stalls, counted by hand and in the vendor's dump.
#include "schedule/stalls.h"

#include <gtest/gtest.h>

#include "base/files.h"
#include "schedule/predict.h"
#include "tests/schedule_text.h"

namespace tessera::schedule {
namespace {

// Ten bundles, of which regions 1 and 2 start at 3 and 7.
std::vector<BundleLine> final_lines() {
  auto lines = empty_lines(10);
  lines[3].comment = "Start region 1";
  lines[7].comment = "Start/End empty region 2 :: Start region 3";
  return lines;
}

// The same with `a`, `b` and `c` more empty bundles before, between and after
// the regions' starts.
std::string packed(size_t a, size_t b, size_t c) {
  auto lines = empty_lines(10 + a + b + c);
  lines[3 + a].comment = "Start region 1 :: Start region 99";
  lines[7 + a + b].comment = "Start/End empty region 2";
  return bundles_text(lines);
}

std::vector<int64_t> stalls_of(const KernelText& kernel) {
  std::vector<int64_t> out;
  for (const Bundle& b : kernel.bundles) out.push_back(b.stalls);
  return out;
}

TEST(ScheduleStalls, GoToTheMiddleOfWhatIsLonger) {
  auto kernel = *parse_lines(final_lines());
  ASSERT_TRUE(add_stalls(packed(0, 0, 0), kernel).ok());
  EXPECT_EQ(stalls_of(kernel), std::vector<int64_t>(10));
  ASSERT_TRUE(add_stalls(packed(5, 20, 1), kernel).ok());
  EXPECT_EQ(stalls_of(kernel),
            (std::vector<int64_t>{0, 5, 0, 0, 0, 20, 0, 0, 1, 0}));
}

TEST(ScheduleStalls, WhatIsShorterHasNone) {
  auto lines = empty_lines(9);
  lines[2].comment = "Start region 1";
  lines[8].comment = "Start region 2";
  auto kernel = *parse_lines(final_lines());
  ASSERT_TRUE(add_stalls(bundles_text(lines), kernel).ok());
  EXPECT_EQ(stalls_of(kernel),
            (std::vector<int64_t>{0, 0, 0, 0, 0, 2, 0, 0, 0, 0}));
}

TEST(ScheduleStalls, RefusesOtherDumps) {
  auto kernel = *parse_lines(final_lines());
  for (const char* text : {"", "x", "= control target key end\n"}) {
    const auto r = add_stalls(text, kernel);
    ASSERT_FALSE(r.ok());
    EXPECT_TRUE(r.error().message.starts_with(
        "[schedule] packed bundles must hold a bundle"))
        << r.error().message;
  }
  auto lines = empty_lines(12);
  lines[9].comment = "Start region 1";
  lines[4].comment = "Start region 2";
  const auto r = add_stalls(bundles_text(lines), kernel);
  ASSERT_FALSE(r.ok());
  EXPECT_NE(r.error().message.find("in one order"), std::string::npos);
}

TEST(ScheduleStalls, OfTheVendorsDump) {
  const auto golden = [](const char* name) {
    return *read_file(std::string("tests/golden/schedule/") + name, 1 << 20);
  };
  auto kernel = *parse_kernel("triangle.1", golden("triangle-bundles.txt"),
                              golden("triangle-slots.txt"));
  ASSERT_TRUE(add_stalls(golden("triangle-packed.txt"), kernel).ok());
  const auto p = *profile_kernel(kernel, *find_chip("v6e"));
  std::vector<int64_t> of;
  for (const RegionCost& c : p.own) of.push_back(c.stalls);
  // One product, whose latency nothing hides.
  EXPECT_EQ(of, (std::vector<int64_t>{0, 3, 15, 0, 244, 0}));
  EXPECT_EQ(p.whole[0].cycles(), 154 + 262);
  const auto out = predict(p, *find_chip("v6e"), {}, {});
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(out->regions[4].bundle_cycles, 32 * (27 + 244));
}

// A jump to the exit. The final bundle there notes no region, but the packed
// ones do.
TEST(ScheduleStalls, TheExitIsARegionToo) {
  auto lines = empty_lines(9);
  lines[1].ops = "%1 = sbr.rel (%p0) target = $region4";
  lines[8].comment = "exit bundle: %k = custom-call()";
  const std::string packed =
      "= control target key end\n"
      "     0   :  {}\n   0x1   :  {}\n   0x2   :  {}\n   0x3   :  {}\n"
      "   0x4   :  {}\n   0x5   :  {}\n   0x6   :  {}\n   0x7   :  {}\n"
      "   0x8 PF:  {} /* Start/End empty region 4 */\n";
  KernelText kernel = *parse_lines(lines);
  ASSERT_TRUE(kernel.exits);
  EXPECT_FALSE(find_regions(kernel, 4).ok());
  ASSERT_TRUE(add_stalls(packed, kernel).ok());
  const auto tree = find_regions(kernel, 4);
  ASSERT_TRUE(tree.ok()) << tree.error().message;
  ASSERT_EQ(tree->regions.size(), 2u);
  EXPECT_EQ(tree->regions[1].begin, 6);
  EXPECT_EQ(tree->regions[1].end, 8);
  // With another delay the region starts elsewhere.
  EXPECT_EQ(find_regions(kernel, 1)->regions[1].begin, 3);
  // Not if the region starts elsewhere in the packed bundles, nor without an
  // exit.
  KernelText other = *parse_lines(lines);
  std::string earlier = packed;
  earlier += "   0x9   :  {}\n";
  ASSERT_TRUE(add_stalls(earlier, other).ok());
  EXPECT_FALSE(find_regions(other, 4).ok());
  lines[8].comment.clear();
  KernelText open = *parse_lines(lines);
  EXPECT_FALSE(open.exits);
  ASSERT_TRUE(add_stalls(packed, open).ok());
  EXPECT_FALSE(find_regions(open, 4).ok());
}

}  // namespace
}  // namespace tessera::schedule
