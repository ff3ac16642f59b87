// schedule/collectives_test.cc: starts, ends and the ops between them.
#include "schedule/collectives.h"

#include <gtest/gtest.h>

#include "schedule/program.h"
#include "tests/schedule_text.h"

namespace tessera::schedule {
namespace {

// In libtpu's form: a permutation beside a loop of two kernels, one beside
// nothing, one with its end right after it, and one in an async call.
constexpr const char* kModule = R"(HloModule m, is_scheduled=true

%fused (p: f32[8]) -> f32[8] {
  ROOT %copy.9 = f32[8]{0} copy(%p)
}

%body.1 (arg: (s32[], f32[8])) -> (s32[], f32[8]) {
  %arg = (s32[], f32[8]{0}) parameter(0)
  %x = f32[8]{0} get-tuple-element(%arg), index=1
  %slice.5 = f32[8]{0} fusion(%x), kind=kLoop, calls=%fused
  %slice.6 = f32[8]{0} fusion(%slice.5), kind=kLoop, calls=%fused
  ROOT %t = (s32[], f32[8]{0}) tuple(%i, %slice.6)
}

%async (p: f32[8]) -> f32[16] {
  %p = f32[8]{0} parameter(0)
  ROOT %all-gather.3 = f32[16]{0} all-gather(%p), dimensions={0}
}

ENTRY %main (a: f32[8], b: bf16[4,16]) -> f32[8] {
  %a = f32[8]{0} parameter(0)
  %b = bf16[4,16]{1,0} parameter(1)
  %collective-permute-start.2 = (f32[8]{0}, f32[8]{0}, u32[], u32[]) collective-permute-start(%a), channel_id=1, source_target_pairs={{0,1}}
  %tuple.1 = (s32[], f32[8]{0}) tuple(%i, %a)
  %while.1 = (s32[], f32[8]{0}) while(%tuple.1), condition=%cond.1, body=%body.1, metadata={op_name="w"}
  %copy.4 = f32[8]{0} copy(%a)
  %collective-permute-done.2 = f32[8]{0} collective-permute-done(%collective-permute-start.2)
  %collective-permute-start = (bf16[4,16]{1,0}, bf16[4,16]{1,0}, u32[]) collective-permute-start(%b)
  %bitcast = f32[8]{0} bitcast(%a)
  %collective-permute-done = bf16[4,16]{1,0} collective-permute-done(%collective-permute-start)
  %all-reduce.7 = f32[8]{0} all-reduce(%a), to_apply=%add
  %async-start = ((f32[8]{0}), f32[16]{0}) async-start(%a), calls=%async
  %copy.5 = f32[8]{0} copy(%a)
  %async-done = f32[16]{0} async-done(%async-start)
  %sizes = s32[4]{0} parameter(2)
  %ragged-all-to-all-start = ((bf16[4,16]{1,0}), bf16[4,16]{1,0}) ragged-all-to-all-start(%b, %b, %sizes, %sizes, %sizes, %sizes)
  %ragged-all-to-all-done = bf16[4,16]{1,0} ragged-all-to-all-done(%ragged-all-to-all-start)
  ROOT %copy.6 = f32[8]{0} copy(%a)
}
)";

KernelText kernel(const char* name, int64_t lines) {
  KernelText out = *parse_lines(empty_lines(lines));
  out.name = name;
  out.opcode = "fusion";
  return out;
}

TEST(ScheduleCollectives, SayWhatRunsBesideThem) {
  Dump dump;
  dump.kernels = {kernel("slice.5", 100), kernel("copy.4", 10)};
  dump.calls = *parse_calls(kModule);
  dump.bodies = parse_bodies(kModule);
  ASSERT_EQ(dump.bodies.size(), 3U);
  EXPECT_EQ(dump.bodies.at("body.1").size(), 5U);
  ScheduleOptions options;
  options.target = "v6e:2x2";
  const auto report = make_schedule(dump, options);
  ASSERT_TRUE(report.ok()) << report.error().message;
  // slice.5 and slice.6 have the same code.
  const std::vector<Collective> due = {
      {"collective-permute-start.2", "collective-permute", 32, true, 2,
       2 * 100 + 10, "while.1"},
      {"collective-permute-start", "collective-permute", 128, true, 0, 0, ""},
      {"all-reduce.7", "all-reduce", 32, false, 0, 0, ""},
      {"async-start", "all-gather", 32, true, 1, 10, "copy.5"},
      {"ragged-all-to-all-start", "ragged-all-to-all", 128, true, 0, 0, ""}};
  ASSERT_EQ(report->collectives.size(), due.size());
  for (size_t i = 0; i < due.size(); ++i) {
    EXPECT_EQ(report->collectives[i], due[i]) << due[i].name;
  }
}

// A loop whose body calls itself does not recurse for ever. A start without an
// end has nothing beside it.
TEST(ScheduleCollectives, TakesOddModules) {
  constexpr const char* kOdd =
      "\n%again (p: f32[]) -> f32[] {\n  %while.2 = f32[] while(%p), "
      "condition=%c, body=%again\n  %slice.5 = f32[] fusion(%p)\n}\n\nENTRY %m "
      "() -> f32[] {\n  %s = (f32[], f32[]) all-gather-start(%p)\n  %while.1 = "
      "f32[] while(%p), condition=%c, body=%again\n}\n";
  Dump dump;
  dump.kernels = {kernel("slice.5", 100)};
  dump.calls = *parse_calls(kOdd);
  dump.bodies = parse_bodies(kOdd);
  ScheduleOptions options;
  options.target = "v6e:2x2";
  const auto report = make_schedule(dump, options);
  ASSERT_TRUE(report.ok()) << report.error().message;
  ASSERT_EQ(report->collectives.size(), 1U);
  EXPECT_EQ(report->collectives[0].ops_between, 0);
  EXPECT_TRUE(parse_bodies("").empty());
}

}  // namespace
}  // namespace tessera::schedule
