// pjrt/compile_options_test.cc: golden bytes, checked by hand against the wire
// format.
#include "pjrt/compile_options.h"

#include <gtest/gtest.h>

namespace tessera::pjrt {
namespace {

std::string hex(const std::string& bytes) {
  std::string out;
  for (const char c : bytes) {
    char two[4];
    snprintf(two, sizeof two, "%02x", static_cast<unsigned char>(c));
    out += two;
  }
  return out;
}

// Tag 0x1a: field 3, length delimited. 0x20, 0x28, 0x30: fields 4, 5, 6 as
// varints; 0x98 0x01: field 19.
TEST(CompileOptions, BytesAreGolden) {
  EXPECT_EQ(hex(compile_options_bytes({})), "1a0420012801");
  EXPECT_EQ(hex(compile_options_bytes({1, 4, true, true})),
            "1a09200128043001980101");
  EXPECT_EQ(hex(compile_options_bytes({300, 1, false, false})),
            "1a0520ac022801");
  EXPECT_EQ(hex(compile_options_bytes({0, 0, false, false})), "1a00");
  EXPECT_EQ(hex(compile_options_bytes({1, int64_t{1} << 40, false, true})),
            "1a0c2001288080808080"
            "20980101");
}

// 0x4a: field 9, the assignment; 08 01 10 01: one replica of one computation;
// 1a: field 3, its devices; 0a: field 1, their ids, packed.
TEST(CompileOptions, ADeviceIsAnAssignment) {
  EXPECT_EQ(hex(compile_options_bytes({1, 1, false, false, {0}})),
            "1a0f200128014a09080110011a030a0100");
  EXPECT_EQ(hex(compile_options_bytes({1, 1, false, true, {300}})),
            "1a13200128014a0a080110011a040a02ac02980101");
}

// 0x3a: field 7, an entry of the map; 0a: its key, 46 bytes; 12 02: its value,
// in it 10 00: field 2, false.
TEST(CompileOptions, AnOptionIsSwitchedOff) {
  CompileOptions options;
  options.in_order = true;
  EXPECT_EQ(compile_options_bytes(options),
            std::string("\x1a\x04\x20\x01\x28\x01\x3a\x34\x0a\x2e") +
                "xla_cpu_enable_concurrency_optimized_scheduler" +
                std::string("\x12\x02\x10\x00", 4));
}

}  // namespace
}  // namespace tessera::pjrt
