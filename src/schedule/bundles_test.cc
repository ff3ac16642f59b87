// schedule/bundles_test.cc: dumps are parsed correctly, or refused.
#include <gtest/gtest.h>

#include "base/files.h"
#include "tests/schedule_text.h"

namespace tessera::schedule {
namespace {

std::string golden(const char* name) {
  return *read_file(std::string("tests/golden/schedule/") + name, 1 << 20);
}

Result<KernelText> triangle() {
  return parse_kernel("triangle.1", golden("triangle-bundles.txt"),
                      golden("triangle-slots.txt"));
}

TEST(ScheduleBundles, ReadsTheVendorsDump) {
  const auto k = triangle();
  ASSERT_TRUE(k.ok()) << k.error().message;
  EXPECT_EQ(k->name, "triangle.1");
  EXPECT_EQ(k->opcode, "custom-call");
  EXPECT_EQ(k->bundles.size(), 154u);
  EXPECT_EQ(k->capacity, (SlotCounts{2, 2, 2, 4, 2, 1, 3, 3, 2, 2, 2}));
  EXPECT_EQ(k->grid, (std::vector<int64_t>{2, 4, 4}));
  ASSERT_EQ(k->windows.size(), 3u);
  EXPECT_EQ(k->windows[0],
            (Window{false, 0, "bf16", {1, 16, 128}, {2, 64, 128}}));
  EXPECT_EQ(k->windows[1],
            (Window{false, 1, "bf16", {1, 128, 128}, {2, 512, 128}}));
  EXPECT_TRUE(k->windows[2].output);
  // Bundle 0x24 fetches 128 granules of q, 0x39 a kilogranule of k, and 0x81
  // writes 128 of the output.
  for (const auto& [at, granules, writes] :
       {std::tuple(0x24, 128, false), {0x39, 1024, false}, {0x81, 128, true}}) {
    const auto& moves = k->bundles[static_cast<size_t>(at)].transfers;
    ASSERT_EQ(moves.size(), 1u) << at;
    EXPECT_EQ(moves[0].granules, granules);
    EXPECT_EQ(moves[0].writes, writes);
    EXPECT_NE(moves[0].reads, writes);
    EXPECT_TRUE(moves[0].predicated);
    EXPECT_TRUE(moves[0].window);
  }
  const auto& exit = k->bundles[0x8f].branch;
  ASSERT_TRUE(exit.has_value());
  EXPECT_EQ(exit->limit, 34);  // 2 x 4 x 4 steps, plus two of the pipeline
}

TEST(ScheduleBundles, ReadsOps) {
  auto lines = empty_lines(3);
  lines[0] = {
      "%1 = vst [vmem:%s0] /*vst_source=*/%v1  ;;  "
      "%2 = sbr.rel (!%p1) /* loc(\"full_tile\":3:1 to :9) */ target = "
      "$region7",
      "Start region 4 :: Start/End empty region 9"};
  lines[1] = {
      "%3 = dma.hbm_to_hbm /*size_in_granules=*/%s2, /*x=*/1  ;;  "
      "%4 = vadd %v1, %v2 /* loc(\"/a/b/kernel.py\":17:4 to :9) :: "
      "combined load */",
      "Start region 7"};
  lines[2] = {
      "%5 = dma.hbm_to_vmem [thread:$0]  /*size_in_granules=*/3 /* two\n"
      "lines with { and ;; */"};
  lines[2].used[kSalu] = 2;
  const auto k = parse_lines(lines);
  ASSERT_TRUE(k.ok()) << k.error().message;
  EXPECT_EQ(k->bundles[0].starts, (std::vector<int64_t>{4, 9}));
  ASSERT_TRUE(k->bundles[0].branch.has_value());
  EXPECT_EQ(k->bundles[0].branch->region, 7);
  EXPECT_FALSE(k->bundles[0].branch->always);
  EXPECT_EQ(k->sources,
            (std::vector<std::string>{"full_tile", "kernel.py:17"}));
  EXPECT_EQ(k->bundles[1].sources, (std::vector<uint32_t>{1}));
  ASSERT_EQ(k->bundles[1].transfers.size(), 1u);
  EXPECT_FALSE(k->bundles[1].transfers[0].granules.has_value());
  EXPECT_TRUE(k->bundles[1].transfers[0].reads);
  EXPECT_TRUE(k->bundles[1].transfers[0].writes);
  EXPECT_EQ(k->bundles[2].transfers[0].granules, 3);
  EXPECT_EQ(k->bundles[2].used[kSalu], 2);
}

// The limit of a loop with the given start, step and test of its counter.
std::optional<int64_t> limit_of(const char* start, const char* step,
                                const char* test) {
  auto lines = empty_lines(8);
  lines[0] = {std::string("%s1 = ") + start};
  lines[1] = {"%s2 = sphi %s1, %s3", "Start region 5"};
  lines[2] = {std::string("%s3 = ") + step};
  lines[3] = {std::string("%p4 = ") + test};
  lines[4] = {"%5 = sbr.rel (!%p4) target = $region5"};
  const auto k = parse_lines(lines);
  return k.ok() ? k->bundles[4].branch->limit : std::optional<int64_t>(-1);
}

TEST(ScheduleBundles, KnowsConstantTrips) {
  const char* step = "sadd.s32 1, %s2";
  const char* test = "scmp.ge.s32.totalorder %s3, 16";
  EXPECT_EQ(limit_of("smov.u32 0", step, test), 16);
  EXPECT_EQ(limit_of("smov.u32 (!%p9), 0", step, test), 16);
  const std::optional<int64_t> none;
  EXPECT_EQ(limit_of("smov.u32 3", step, test), none);
  EXPECT_EQ(limit_of("smov.u32 0", "sadd.s32 2, %s2", test), none);
  EXPECT_EQ(limit_of("smov.u32 0", "sadd.s32 1, %s9", test), none);
  EXPECT_EQ(limit_of("smov.u32 0", step, "scmp.ge.s32.totalorder %s3, %s8"),
            none);
  EXPECT_EQ(limit_of("smov.u32 0", step, "scmp.lt.s32.totalorder %s3, 16"),
            none);
}

TEST(ScheduleBundles, RefusesOtherForms) {
  const std::vector<BundleLine> lines = empty_lines(2);
  const std::string bundles = bundles_text(lines);
  const std::string slots = slots_text(lines);
  ASSERT_TRUE(parse_kernel("k", bundles, slots).ok());
  const auto refused = [](const std::string& b, const std::string& s,
                          const char* what) {
    const auto k = parse_kernel("k", b, s);
    ASSERT_FALSE(k.ok()) << what;
    EXPECT_NE(k.error().message.find(what), std::string::npos)
        << k.error().message;
    EXPECT_TRUE(k.error().message.starts_with("[schedule] "));
  };
  const auto with = [](std::string text, const std::string& from,
                       const std::string& to) {
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  refused("", slots, "key of labels");
  refused(bundles + "  0x3   : { }\n", slots, "without a gap");
  refused(with(bundles, "0x1", "0x2"), slots, "without a gap");
  refused(with(bundles, "> {", "> "), slots, "opening brace");
  refused(bundles.substr(0, bundles.size() - 3), slots, "closing brace");
  refused(with(bundles, "{  }", "{ /* }"), slots, "end of each comment");
  refused(with(bundles, "{  }", "{ } x"), slots, "behind its brace");
  refused(with(bundles, "{  }", "{ sbr.ind %s1 }"), slots, "name a region");
  refused(bundles, with(slots, "CAPACTIY", "CAPACITY"), "must say");
  refused(bundles, with(slots, "XLU, ", ""), "must say");
  refused(bundles, with(slots, "    2 ", "    0 "), "must be positive");
  refused(bundles, with(slots, "    2 ", "    x "), "small numbers");
  refused(bundles, with(slots, "\n0 0", "\n0"), "small numbers");
  refused(bundles, with(slots, "\n0 0", "\n3 0"), "must fit its slots");
  refused(bundles, slots.substr(0, slots.size() - 23), "as many bundles");
  refused(bundles, slots + "0 0 0 0 0 0 0 0 0 0 0\n", "as many bundles");
}

TEST(ScheduleBundles, NoPrefixCrashes) {
  const std::string bundles = golden("triangle-bundles.txt");
  const std::string slots = golden("triangle-slots.txt");
  for (size_t n = 0; n < bundles.size(); n += 97) {
    EXPECT_FALSE(parse_kernel("k", bundles.substr(0, n), slots).ok()) << n;
  }
  for (size_t n = 0; n + 24 < slots.size(); n += 7) {
    EXPECT_FALSE(parse_kernel("k", bundles, slots.substr(0, n)).ok()) << n;
  }
}

}  // namespace
}  // namespace tessera::schedule
