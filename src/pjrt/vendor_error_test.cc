// pjrt/vendor_error_test.cc: the parts of a vendor's message that are kept.
#include "pjrt/vendor_error.h"

#include <gtest/gtest.h>

namespace tessera::pjrt {
namespace {

TEST(VendorError, KeepsTheFirstLinesAndDropsTheNoise) {
  EXPECT_EQ(informative("-:3:36: error: use of value '%b'\n"
                        "-:2:44: note: prior use here\n"
                        "<unknown>:0: error: Failed to parse using StableHLO "
                        "v1.23.0, this could indicate ...\n"),
            "-:3:36: error: use of value '%b'; -:2:44: note: prior use here");
  EXPECT_EQ(informative("unregistered operation 'arith.addq'\n\n"
                        "The MLIR operation involved:\n  %2 = x\n\n"
                        "Please report a bug at: https://example.com\n\n"
                        "=== Source Location Trace: ===\nfile.cc:409\n"),
            "unregistered operation 'arith.addq'; The MLIR operation "
            "involved: %2 = x");
  EXPECT_EQ(informative(""), "no message");
  EXPECT_EQ(informative("\n\n  \n"), "no message");
}

TEST(VendorError, IsOneLineOfAFewHundredBytes) {
  std::string long_one;
  for (int i = 0; i < 1000; ++i) long_one += "line\x01 of a dump\n";
  const Error e = vendor_error("the program must compile", 13, long_one, "v6e");
  EXPECT_TRUE(
      e.message.starts_with("[pjrt] the program must compile, found INTERNAL: "
                            "'line\\x01 of a dump; "))
      << e.message;
  EXPECT_TRUE(e.message.ends_with("'... for v6e")) << e.message;
  EXPECT_LT(e.message.size(), 800u);
  EXPECT_EQ(e.message.find('\n'), std::string::npos);
}

TEST(VendorError, CodesAreNamedAndPickTheKind) {
  EXPECT_EQ(code_name(3), "INVALID_ARGUMENT");
  EXPECT_EQ(code_name(16), "UNAUTHENTICATED");
  EXPECT_EQ(code_name(17), "code 17");
  EXPECT_EQ(code_name(-1), "code -1");
  EXPECT_EQ(vendor_error("r", 3, "m", "s").kind, ErrorKind::invalid);
  EXPECT_EQ(vendor_error("r", 8, "m", "s").kind, ErrorKind::limit);
  EXPECT_EQ(vendor_error("r", 12, "m", "s").kind, ErrorKind::unavailable);
  EXPECT_EQ(vendor_error("r", 14, "m", "s").kind, ErrorKind::unavailable);
}

}  // namespace
}  // namespace tessera::pjrt
