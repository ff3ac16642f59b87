// base/float16_test.cc: every 16-bit pattern, and rounding between them.
#include "base/float16.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tessera {
namespace {

// The value by definition: a sign, an exponent and a fraction.
double value_of(uint16_t bits, int exponent_bits, int fraction_bits) {
  const int last = (1 << exponent_bits) - 1;
  const int bias = last / 2;
  const int exponent = bits >> fraction_bits & last;
  const int fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == last) {
    return fraction ? std::nan("") : sign * INFINITY;
  }
  const double hidden = exponent == 0 ? 0 : 1;
  return sign * std::ldexp(hidden + std::ldexp(fraction, -fraction_bits),
                           (exponent == 0 ? 1 : exponent) - bias);
}

template <class Widen, class Narrow>
void check_format(int exponent_bits, int fraction_bits, Widen widen,
                  Narrow narrow) {
  for (uint32_t b = 0; b < 0x10000; ++b) {
    const auto bits = static_cast<uint16_t>(b);
    const double want = value_of(bits, exponent_bits, fraction_bits);
    const double got = widen(bits);
    if (std::isnan(want)) {
      ASSERT_TRUE(std::isnan(got)) << b;
      ASSERT_TRUE(std::isnan(widen(narrow(got)))) << b;
      continue;
    }
    ASSERT_EQ(got, want) << b;
    ASSERT_EQ(std::signbit(got), std::signbit(want)) << b;
    ASSERT_EQ(narrow(want), bits) << b;
    // Between this value and the next: halfway rounds to the even one, other
    // values to the nearest.
    const double next =
        value_of(static_cast<uint16_t>(b + 1), exponent_bits, fraction_bits);
    if ((b & 0x7fff) == 0x7fff || !std::isfinite(want + next)) continue;
    const double middle = want + (next - want) / 2;
    const auto even = static_cast<uint16_t>(b + (b & 1));
    ASSERT_EQ(narrow(middle), even) << b;
    ASSERT_EQ(narrow(std::nextafter(middle, want)), bits) << b;
    ASSERT_EQ(narrow(std::nextafter(middle, next)), b + 1) << b;
  }
}

TEST(Float16, Bf16) { check_format(8, 7, bf16_to_float, to_bf16); }
TEST(Float16, F16) { check_format(5, 10, f16_to_float, to_f16); }

TEST(Float16, Overflows) {
  EXPECT_EQ(to_f16(65519.99), 0x7bff);
  EXPECT_EQ(to_f16(65520), 0x7c00);
  EXPECT_EQ(to_f16(-1e300), 0xfc00);
  EXPECT_EQ(to_bf16(1e300), 0x7f80);
  EXPECT_EQ(to_f16(0x1p-25), 0);  // halfway to the least, and even
  EXPECT_EQ(to_f16(-0x1.8p-25), 0x8001);
  EXPECT_EQ(to_bf16(1e-300), 0);
}

}  // namespace
}  // namespace tessera
