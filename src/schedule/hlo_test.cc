// schedule/hlo_test.cc: the calls of a scheduled module.
#include "schedule/hlo.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <new>
#include <string>

#include "schedule/program.h"
#include "tests/little_memory.h"
#include "tests/schedule_text.h"

namespace tessera::schedule {
namespace {

// Two copies with the same code, of which `copy.2` was dumped; a third copy
// with another layout; and beside the last one a copy into the chip's memory.
constexpr const char* kModule = R"(HloModule m, is_scheduled=true

%fused (p: f32[8]) -> f32[8] {
  ROOT %copy.9 = f32[8]{0} copy(%p)
}

ENTRY %main (a: bf16[4,937,8], b: bf16[4,937,8]) -> bf16[4,937,8] {
  %a = bf16[4,937,8]{2,1,0:T(8,128)(2,1)} parameter(0), metadata={op_name="a"}
  %b = bf16[4,937,8]{2,1,0:T(8,128)(2,1)} parameter(1)
  %copy.2 = bf16[4,937,8]{1,2,0:T(8,128)(2,1)} copy(%a), metadata={op_name="x(y) = z(
}}, more"}
  %copy.3 = bf16[4,937,8]{1,2,0:T(8,128)(2,1)} copy(%b)
  %copy-start = (bf16[4,937,8]{1,2,0:T(8,128)S(1)}, bf16[4,937,8]{1,2,0:T(8,128)}, u32[]{:S(2)}) copy-start(%copy.3)
  %copy.4 = bf16[4,937,8]{2,0,1:T(8,128)(2,1)} copy(%copy.2)
  %copy-done = bf16[4,937,8]{1,2,0:T(8,128)S(1)} copy-done(%copy-start)
  ROOT %tuple = (bf16[4,937,8]{2,0,1}, bf16[4,937,8]{1,2,0}) tuple(%copy.4, %copy-done)
}
)";

#ifndef TESSERA_SANITIZED
TEST(ScheduleHlo, ShortTextsTakeLittleMemory) {
  std::string names = "\nENTRY %e {\n  %x = f32[] add(";
  names += std::string(200000, '%') + ")\n}\n";
  std::string shapes = "\nENTRY %e {\n  %a = f32[";
  shapes += std::string(200000, '1') + "] parameter(0)\n  %b = f32[] add(%a";
  for (int i = 0; i < 50000; ++i) shapes += ", %a";
  shapes += ")\n}\n";
  for (const std::string& text : {names, shapes}) {
    EXPECT_TRUE(tessera::testing::ends_by_itself(128 << 20, [&] {
      try {
        if (parse_calls(text).ok()) return;
      } catch (const std::bad_alloc&) {
      }
      _exit(1);
    })) << text.size();
  }
}
#endif

TEST(ScheduleHlo, ReadsTheEntry) {
  const auto calls = parse_calls(kModule);
  ASSERT_TRUE(calls.ok()) << calls.error().message;
  std::vector<std::string> names, opcodes;
  for (const HloCall& c : *calls) {
    names.push_back(c.name);
    opcodes.push_back(c.opcode);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"a", "b", "copy.2", "copy.3",
                                             "copy-start", "copy.4",
                                             "copy-done", "tuple"}));
  EXPECT_EQ(opcodes, (std::vector<std::string>{"parameter", "parameter", "copy",
                                               "copy", "copy-start", "copy",
                                               "copy-done", "tuple"}));
  EXPECT_EQ((*calls)[2].signature, (*calls)[3].signature);
  EXPECT_NE((*calls)[2].signature, (*calls)[5].signature);
  EXPECT_EQ((*calls)[7].operands,
            (std::vector<std::string>{"copy.4", "copy-done"}));
  EXPECT_EQ((*calls)[4].bytes, 4 * 937 * 8 * 2);
  EXPECT_EQ((*calls)[2].bytes, 0);
}

TEST(ScheduleHlo, RefusesWhatHasNoEntry) {
  for (const char* text :
       {"", "HloModule m\n\n%f (a: f32[]) -> f32[] {\n}\n"}) {
    const auto calls = parse_calls(text);
    ASSERT_FALSE(calls.ok());
    EXPECT_TRUE(calls.error().message.starts_with("[schedule] "));
  }
  // Huge untrusted sizes do not overflow.
  const auto huge = parse_calls(
      "\nENTRY %m () -> f32[] {\n  %c = (f32[999999999,999999999,99999]{0}, "
      "f32[1]{0}, u32[]) copy-start(%a)\n}\n");
  ASSERT_TRUE(huge.ok());
  EXPECT_EQ(huge->at(0).bytes, 0);
}

KernelText kernel(const char* name) {
  KernelText out = *parse_lines(empty_lines(10));
  out.name = name;
  out.opcode = "copy";
  return out;
}

TEST(ScheduleHlo, AProgramIsTheSumOfItsCalls) {
  Dump dump;
  dump.kernels = {kernel("copy.2"), kernel("copy.4"), kernel("copy.9")};
  dump.calls = *parse_calls(kModule);
  ScheduleOptions options;
  options.target = "v6e:1x1";
  const auto report = make_schedule(dump, options);
  ASSERT_TRUE(report.ok()) << report.error().message;
  EXPECT_EQ(report->kernels[0].calls, 2);
  EXPECT_EQ(report->kernels[1].calls, 1);
  EXPECT_EQ(report->kernels[2].calls, 1);  // called by a body
  // 64 cycles of HBM, of which copy.4's 10 cycles hide 10.
  EXPECT_EQ(report->copy_cycles, 54);
  EXPECT_EQ(report->cycles, 40 + 54);
  EXPECT_EQ(report->cycles_loops_once, 40 + 54);
}

}  // namespace
}  // namespace tessera::schedule
