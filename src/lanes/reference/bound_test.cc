// lanes/reference/bound_test.cc: compares single elements with expected values.
#include "lanes/reference/bound.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tessera::reference {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

bool passes(Expected want, double got, Dtype dtype = Dtype::f32) {
  return compare(want, got, rounding_of(dtype)).ratio <= 1;
}

TEST(Bound, AllowsItsErrorAndOneCast) {
  EXPECT_TRUE(passes({1, 1e-3}, 1.001));
  EXPECT_FALSE(passes({1, 1e-3}, 1.0011));
  EXPECT_TRUE(passes({1, 0}, 1 + 0x1p-24));
  EXPECT_FALSE(passes({1, 0}, 1 + 0x1p-23));
  EXPECT_TRUE(passes({1, 0}, 1 + 0x1p-8, Dtype::bf16));
  EXPECT_FALSE(passes({1, 0}, 1 + 0x1p-7, Dtype::bf16));
  EXPECT_TRUE(passes({-1, 0}, -1 - 0x1p-11, Dtype::f16));
  EXPECT_FALSE(passes({-1, 0}, -1 - 0x1p-10, Dtype::f16));
  EXPECT_TRUE(passes({0x1.8p-24, 0}, 0x1p-23, Dtype::f16));  // subnormal
  EXPECT_FALSE(passes({0x1p-24, 0}, 0x1p-23, Dtype::f16));
}

TEST(Bound, ExactZeroIsExact) {
  EXPECT_TRUE(passes({0, 0}, 0));
  EXPECT_TRUE(passes({0, 0}, -0.0));
  EXPECT_FALSE(passes({0, 0}, 0x1p-149));
  EXPECT_FALSE(passes({0, 0}, kNan));
}

TEST(Bound, KindsMustMatch) {
  EXPECT_TRUE(passes({kNan, 0}, kNan));
  EXPECT_FALSE(passes({kNan, kNan}, 0));
  EXPECT_FALSE(passes({1, kNan}, 2));
  EXPECT_TRUE(passes({kInf, 0}, kInf));
  EXPECT_FALSE(passes({kInf, 0}, -kInf));
  EXPECT_FALSE(passes({kInf, 0}, 1e38));
  EXPECT_FALSE(passes({kInf, 0}, kNan));
  EXPECT_FALSE(passes({1, 0}, kInf));
  EXPECT_TRUE(passes({70000, 0}, kInf, Dtype::f16));  // above the largest f16
  EXPECT_FALSE(passes({60000, 0}, kInf, Dtype::f16));
}

// The forward formula, written out a second time.
TEST(Bound, ForwardFormula) {
  const RowFacts row = {100, 64, 3, 2};
  const double u = std::pow(2, -24);
  EXPECT_DOUBLE_EQ(forward_error(row, rounding_of(Dtype::f32)),
                   (8 + 10) * u + 2 * (64 + 4) * u * 3);
  EXPECT_DOUBLE_EQ(forward_error(row, rounding_of(Dtype::bf16)),
                   std::pow(2, -8) + (8 + 10) * u + 2 * (64 + 4) * u * 3);
}

}  // namespace
}  // namespace tessera::reference
