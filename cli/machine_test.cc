// cli/machine_test.cc: names of folders.
#include "cli/machine.h"

#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

TEST(Machine, SlugIsLowerCaseWordsAndNumbers) {
  EXPECT_EQ(slug("Intel(R) Xeon(R) Processor"), "intel-xeon-processor");
  EXPECT_EQ(slug("AMD EPYC 9354P 32-Core"), "amd-epyc-9354p-32-core");
  EXPECT_EQ(slug("  Core(TM) i7 @ 3.4GHz "), "core-i7-3-4ghz");
  EXPECT_EQ(slug("../.."), "unknown");  // no path to another folder
  EXPECT_EQ(slug(""), "unknown");
}

TEST(Machine, KnowsItsCores) {
  const OtherCores others;
  EXPECT_GE(others.so_far(), 0);
}

}  // namespace
}  // namespace tessera::cli
