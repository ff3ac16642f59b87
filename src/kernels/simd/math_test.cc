// kernels/simd/math_test.cc: compares exp2, log2 and tanh on every ISA of this
// machine with fp64, over dense sweeps and at special values.
#include "kernels/simd/math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "kernels/simd/functions.h"
#include "tests/simd_parts.h"

namespace tessera::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr double kRounding = 0x1p-24;

std::vector<float> all_of(ArrayFunction function, std::vector<float> from) {
  const size_t count = from.size();
  from.resize((count + 15) / 16 * 16, 1.0F);
  std::vector<float> to(from.size());
  function(from.data(), to.data(), static_cast<int64_t>(from.size()));
  to.resize(count);
  return to;
}

float one_of(ArrayFunction function, float x) {
  return all_of(function, {x}).front();
}

// Floats from `from` to `to`, `step` apart in their bits.
std::vector<float> sweep(float from, float to, uint32_t step) {
  const auto first = std::bit_cast<uint32_t>(from);
  const auto last = std::bit_cast<uint32_t>(to);
  EXPECT_LE(first, last);
  std::vector<float> out;
  out.reserve((last - first) / step + 1);
  for (uint32_t bits = first; bits <= last; bits += step) {
    out.push_back(std::bit_cast<float>(bits));
  }
  return out;
}

// The largest error(x, got) of a function over `from`.
template <class Error>
double worst_of(ArrayFunction function, const std::vector<float>& from,
                const Error& error) {
  const std::vector<float> got = all_of(function, from);
  double worst = 0;
  for (size_t i = 0; i < from.size(); ++i) {
    const double met = error(double{from[i]}, double{got[i]});
    EXPECT_FALSE(std::isnan(met)) << from[i];
    worst = std::max(worst, met);
  }
  return worst;
}

class SimdMath : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    const std::vector<Isa> here = machine_isas();
    if (std::find(here.begin(), here.end(), GetParam()) == here.end()) {
      GTEST_SKIP() << "this machine has no " << to_string(GetParam());
    }
    f_ = array_functions(GetParam());
    slope_ = testing::simd_parts(GetParam()).slope;
  }
  // Whether the ISA's fma rounds once.
  static bool fuses() { return GetParam() != Isa::portable; }
  float exp2_of(float x) const { return one_of(f_.exp2, x); }
  float log2_of(float x) const { return one_of(f_.log2, x); }
  float tanh_of(float y) const { return one_of(f_.tanh, y); }
  float slope_of(float y) const { return one_of(slope_, y); }

  ArrayFunctions f_;
  ArrayFunction slope_ = nullptr;
};
INSTANTIATE_TEST_SUITE_P(
    Isas, SimdMath, ::testing::Values(Isa::portable, Isa::avx2, Isa::avx512),
    [](const auto& of) { return std::string(to_string(of.param)); });

TEST_P(SimdMath, Exp2) {
  const auto relative = [](double x, double got) {
    const double want = std::exp2(x);
    return want < 0x1p-126 ? 0 : std::abs(got - want) / want;
  };
  for (const float last : {127.0F, -126.0F}) {
    const float first = std::copysign(1e-30F, last);
    // The worst error seen, with an fma that rounds twice.
    EXPECT_LT(worst_of(f_.exp2, sweep(first, last, 997), relative), 1.8e-7);
    // The bound in math.h; beyond 1/2 the errors repeat.
    EXPECT_LT(worst_of(f_.exp2,
                       sweep(std::copysign(0x1p-6F, last),
                             std::copysign(0.5F, last), 97),
                       relative),
              (fuses() ? 2.94 : 3.34) * kRounding);
  }
  EXPECT_EQ(exp2_of(0), 1);
  EXPECT_EQ(exp2_of(-0.0F), 1);
  for (const float low : {-127.0F, -127.5F, -128.0F, -1e5F, -1e30F, -kInf}) {
    EXPECT_EQ(exp2_of(low), 0) << low;
  }
  // Between -126 and -127, values are at most 2^-126.
  for (float x = -126; x > -127; x -= 1.0F / 64) {
    EXPECT_GE(exp2_of(x), 0) << x;
    EXPECT_LE(exp2_of(x), 0x1p-126F) << x;
  }
  for (int n = -126; n <= 127; ++n) {
    EXPECT_EQ(exp2_of(static_cast<float>(n)), std::ldexp(1.0F, n)) << n;
  }
  EXPECT_TRUE(std::isnan(exp2_of(kNan)));
  EXPECT_TRUE(std::isnan(exp2_of(-kNan)));
}

TEST_P(SimdMath, Log2) {
  const double bound = (fuses() ? 2.48 : 2.74) * kRounding;  // as math.h has it
  EXPECT_LT(worst_of(f_.log2,
                     sweep(0x1p-126F, std::numeric_limits<float>::max(), 9973),
                     [](double x, double got) {
                       const double want = std::log2(x);
                       return std::abs(got - want) /
                              std::max(1.0, std::abs(want));
                     }),
            bound);
  // Sums of probabilities are at least 1.
  EXPECT_LT(worst_of(f_.log2, sweep(1, 4, 17),
                     [](double x, double got) {
                       return std::abs(got - std::log2(x));
                     }),
            bound);
  for (int n = -126; n <= 127; ++n) {
    EXPECT_EQ(log2_of(std::ldexp(1.0F, n)), static_cast<float>(n)) << n;
  }
  EXPECT_EQ(log2_of(kInf), kInf);
  EXPECT_TRUE(std::isnan(log2_of(kNan)));
}

// The bound of the slope in lanes/reference/bound.cc; the worst error seen is
// 4.7 kRounding.
TEST_P(SimdMath, TanhAndItsSlope) {
  constexpr double kBound = 8 * kRounding;
  const double to_x = std::log(2.0) / 2;
  const auto slope = [&](double y) {
    return 1 / (std::cosh(y * to_x) * std::cosh(y * to_x));
  };
  for (const float last : {100.0F, -100.0F}) {
    const std::vector<float> all =
        sweep(std::copysign(1e-20F, last), last, 997);
    EXPECT_LT(worst_of(f_.tanh, all,
                       [&](double y, double got) {
                         EXPECT_LE(std::abs(got), 1) << y;
                         const double want = std::tanh(y * to_x);
                         return std::abs(got - want) / std::abs(want);
                       }),
              kBound);
    // For negative y, 1 + u loses the bits below the last place of 1.
    EXPECT_LT(worst_of(slope_, all,
                       [&](double y, double got) {
                         return std::abs(got - slope(y));
                       }),
              kBound);
    EXPECT_LT(worst_of(slope_, all,
                       [&](double y, double got) {
                         return y > 0 && y < 59
                                    ? std::abs(got - slope(y)) / slope(y)
                                    : 0;
                       }),
              kBound);
  }
  EXPECT_EQ(tanh_of(0), 0);
  EXPECT_EQ(slope_of(0), 1);
  for (const float sign : {-1.0F, 1.0F}) {
    for (const float y : {60.0F, 61.0F, 1e30F, kInf}) {
      EXPECT_EQ(tanh_of(sign * y), sign) << y;
      EXPECT_LT(slope_of(sign * y), 1e-17) << y;
      EXPECT_GE(slope_of(sign * y), 0) << y;
    }
  }
  EXPECT_TRUE(std::isnan(tanh_of(kNan)));
  EXPECT_TRUE(std::isnan(slope_of(kNan)));
}

}  // namespace
}  // namespace tessera::kernels
