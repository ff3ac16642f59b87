// kernels/simd/math_test.cc: exp2, log2 and tanh against fp64, over dense
// sweeps and at special values. The formulas are the same for every ISA; here
// they run on Portable, which any machine has, and on the others in the tests
// of lanes/cpu.
#include "kernels/simd/math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kernels/simd/portable.h"

namespace tessera::kernels {
namespace {

using V = Portable;
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

float exp2_of(float x) { return exp2<V>(V::set(x))[2]; }
float log2_of(float x) { return log2<V>(V::set(x))[1]; }
Tanh<V> tanh_of(float y) { return Tanh<V>(V::set(y)); }

// Floats from `from` to `to`, `step` apart in their bits.
template <class Visit>
void sweep(float from, float to, uint32_t step, Visit&& visit) {
  const auto first = std::bit_cast<uint32_t>(from);
  const auto last = std::bit_cast<uint32_t>(to);
  ASSERT_LE(first, last);
  for (uint32_t bits = first; bits <= last; bits += step) {
    visit(std::bit_cast<float>(bits));
  }
}

TEST(SimdMath, Exp2) {
  double worst = 0;
  const auto check = [&](float x) {
    const double want = std::exp2(double{x});
    if (want < 0x1p-126) return;
    worst = std::max(worst, std::abs(exp2_of(x) - want) / want);
  };
  sweep(1e-30f, 127.0f, 997, check);
  sweep(-1e-30f, -126.0f, 997, check);
  // Two roundings for each of fma's one: a little above the 1.2e-7 that the
  // polynomial has with it.
  EXPECT_LT(worst, 1.8e-7);
  EXPECT_EQ(exp2_of(0), 1);
  EXPECT_EQ(exp2_of(-0.0f), 1);
  for (const float low : {-127.0f, -127.5f, -128.0f, -1e5f, -1e30f, -kInf}) {
    EXPECT_EQ(exp2_of(low), 0) << low;
  }
  // Nothing but falls in between.
  for (float x = -126; x > -127; x -= 1.0f / 64) {
    EXPECT_GE(exp2_of(x), 0) << x;
    EXPECT_LE(exp2_of(x), 0x1p-126f) << x;
  }
  for (int n = -126; n <= 127; ++n) {
    EXPECT_EQ(exp2_of(static_cast<float>(n)), std::ldexp(1.0f, n)) << n;
  }
  EXPECT_TRUE(std::isnan(exp2_of(kNan)));
  EXPECT_TRUE(std::isnan(exp2_of(-kNan)));
}

TEST(SimdMath, Log2) {
  double worst = 0;
  sweep(0x1p-126f, std::numeric_limits<float>::max(), 9973, [&](float x) {
    const double want = std::log2(double{x});
    worst = std::max(
        worst, std::abs(log2_of(x) - want) / std::max(1.0, std::abs(want)));
  });
  EXPECT_LT(worst, 2e-7);  // the worst met is 8.1e-8, and 1.4e-7 below
  // Sums of probabilities begin at 1.
  worst = 0;
  sweep(1.0f, 4.0f, 17, [&](float x) {
    worst = std::max(worst, std::abs(log2_of(x) - std::log2(double{x})));
  });
  EXPECT_LT(worst, 2e-7);
  for (int n = -126; n <= 127; ++n) {
    EXPECT_EQ(log2_of(std::ldexp(1.0f, n)), static_cast<float>(n)) << n;
  }
  EXPECT_EQ(log2_of(kInf), kInf);
  EXPECT_TRUE(std::isnan(log2_of(kNan)));
}

TEST(SimdMath, TanhAndItsSlope) {
  const double to_x = std::log(2.0) / 2;
  double worst = 0, worst_slope = 0, worst_relative = 0;
  const auto check = [&](float y) {
    const double x = y * to_x;
    const double want = std::tanh(x);
    const Tanh<V> got = tanh_of(y);
    worst = std::max(worst, std::abs(got.value[0] - want) / std::abs(want));
    const double slope = 1 / (std::cosh(x) * std::cosh(x));
    // Where y is negative, 1 + u loses what is below the last place of 1.
    const double error = std::abs(got.slope[0] - slope);
    worst_slope = std::max(worst_slope, error);
    if (y > 0 && y < 59)
      worst_relative = std::max(worst_relative, error / slope);
    EXPECT_LE(std::abs(got.value[0]), 1) << y;
  };
  sweep(1e-20f, 100.0f, 997, check);
  sweep(-1e-20f, -100.0f, 997, check);
  // As lanes/reference/bound.cc has the slope; the worst met is 4.7 of them.
  EXPECT_LT(worst, 8 * 0x1p-24);
  EXPECT_LT(worst_slope, 8 * 0x1p-24);
  EXPECT_LT(worst_relative, 8 * 0x1p-24);
  EXPECT_EQ(tanh_of(0).value[0], 0);
  EXPECT_EQ(tanh_of(0).slope[0], 1);
  for (const float sign : {-1.0f, 1.0f}) {
    for (const float y : {60.0f, 61.0f, 1e30f, kInf}) {
      EXPECT_EQ(tanh_of(sign * y).value[0], sign) << y;
      EXPECT_LT(tanh_of(sign * y).slope[0], 1e-17) << y;
      EXPECT_GE(tanh_of(sign * y).slope[0], 0) << y;
    }
  }
  EXPECT_TRUE(std::isnan(tanh_of(kNan).value[0]));
  EXPECT_TRUE(std::isnan(tanh_of(kNan).slope[0]));
}

}  // namespace
}  // namespace tessera::kernels
