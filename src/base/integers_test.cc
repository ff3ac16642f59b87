// base/integers_test.cc: rounding against its definition.
#include "base/integers.h"

#include <gtest/gtest.h>

namespace tessera {
namespace {

TEST(Integers, RoundUpAndDownForEverySign) {
  for (int64_t n = 1; n <= 9; ++n) {
    for (int64_t a = -40; a <= 40; ++a) {
      const int64_t up = ceil_div(a, n);
      EXPECT_TRUE(up * n >= a && (up - 1) * n < a) << a << " / " << n;
      const int64_t down = floor_div(a, n);
      EXPECT_TRUE(down * n <= a && (down + 1) * n > a) << a << " / " << n;
    }
  }
}

TEST(Integers, TheFarthestNumbersDoNotOverflow) {
  EXPECT_EQ(ceil_div(INT64_MAX, 2), int64_t{1} << 62);
  EXPECT_EQ(floor_div(INT64_MAX, 2), (int64_t{1} << 62) - 1);
  EXPECT_EQ(ceil_div(INT64_MIN, 2), -(int64_t{1} << 62));
  EXPECT_EQ(floor_div(INT64_MIN, 3), INT64_MIN / 3 - 1);
}

}  // namespace
}  // namespace tessera
