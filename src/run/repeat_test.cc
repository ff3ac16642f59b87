// run/repeat_test.cc: tests which receipts are of a run that can run again.
#include "run/repeat.h"

#include <gtest/gtest.h>

namespace tessera::run {
namespace {

std::string refused(const receipt::Receipt& claimed) {
  const auto options = options_to_repeat(claimed, {}, {});
  return options ? "" : options.error().message;
}

TEST(Repeat, OnlyAttentionThatRanRunsAgain) {
  const std::string due =
      "[receipt] a receipt must be of attention that ran for it to run again, "
      "found one of ";
  receipt::Receipt claimed;
  claimed.lane.executed = "reference";
  EXPECT_EQ(refused(claimed), "");
  claimed.lane.runtime_mode = "compiled only";
  EXPECT_EQ(refused(claimed), due + "a compile alone");
  claimed.lane.runtime_mode = "executed";
  claimed.kind = receipt::Kind::operation;
  EXPECT_EQ(refused(claimed), due + "an operation");
  claimed.kind = receipt::Kind::training;
  EXPECT_EQ(refused(claimed), due + "a training run");
}

}  // namespace
}  // namespace tessera::run
