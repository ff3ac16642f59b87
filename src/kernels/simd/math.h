// kernels/simd/math.h: exp2, log2 and tanh on vectors of floats.
#pragma once

#include <cstdint>

namespace tessera::kernels {
namespace {

inline constexpr float kLog2e = 1.44269504f;

// x = n + r with a whole n and r in [-1/2, 1/2]; `power` is 2^n. Needs x in
// [-127, 128); at -127 the power is exactly 0.
//
// Adding 1.5 * 2^23 + 127 leaves n + 127 in the low bits of the sum. Shifted
// into the exponent field, they make 2^n.
template <class V>
struct Split {
  typename V::F power, r;

  explicit Split(typename V::F x) {
    const auto magic = V::set(12583039.0f);
    const auto sum = V::add(x, magic);
    power = V::as_float(V::template shift_left<23>(V::as_int(sum)));
    r = V::sub(x, V::sub(sum, magic));
  }
};

// 2^x for x up to 127, exactly 0 for x <= -127; NaN stays NaN. Minimax
// polynomial of degree 5 on [-1/2, 1/2]. Relative error, in 2^-24: 1.82 from
// the polynomial, and 1.12 from its sums and products, or 1.52 where fma rounds
// twice.
template <class V>
inline typename V::F exp2(typename V::F x) {
  const Split<V> s(V::max(V::set(-127.0f), x));
  auto p = V::fma(V::set(1.32647238e-3f), s.r, V::set(9.67151299e-3f));
  p = V::fma(p, s.r, V::set(5.55073358e-2f));
  p = V::fma(p, s.r, V::set(2.40222424e-1f));
  p = V::fma(p, s.r, V::set(6.93147004e-1f));
  p = V::fma(p, s.r, V::set(1.0f));
  return V::mul(p, s.power);
}

// log2(x) of positive normal numbers; +inf and NaN return themselves. Error, in
// 2^-24 max(1, |log2(x)|): 2.48, or 2.74 where fma rounds twice; 0.12 of it is
// from the polynomial.
//
// x = 2^e m with m in [sqrt(1/2), sqrt(2)); log2(m) = 2 / ln 2 * atanh(s) with
// s = (m - 1) / (m + 1), |s| < 0.172.
template <class V>
inline typename V::F log2(typename V::F x) {
  const auto bits = V::as_int(x);
  const auto e =
      V::template shift_right<23>(V::sub_int(bits, V::set_int(0x3f3504f3)));
  const auto m = V::as_float(V::sub_int(bits, V::template shift_left<23>(e)));
  const auto s = V::div(V::sub(m, V::set(1)), V::add(m, V::set(1)));
  const auto z = V::mul(s, s);
  auto p = V::fma(V::set(4.31735873e-1f), z, V::set(5.76714396e-1f));
  p = V::fma(p, z, V::set(9.61798847e-1f));
  p = V::fma(p, z, V::set(2.88539004f));
  const auto y = V::fma(s, p, V::to_float(e));
  const auto inf = V::set(__builtin_inff());
  const auto odd = V::add(x, inf);  // inf or NaN
  return V::select(V::equal(V::sub(x, x), V::zero()), y, odd);
}

// tanh(x), given y = 2 log2(e) x, and its slope 1 - tanh(x)^2. With u = 2^y - 1
// they are u / (u + 2) and 4 (u + 1) / (u + 2)^2, without cancellation.
template <class V>
struct Tanh {
  typename V::F value, slope;

  explicit Tanh(typename V::F y) {
    const auto limit = V::set(60.0f);  // tanh rounds to 1; also bounds inf
    const Split<V> s(V::max(V::sub(V::zero(), limit), V::min(limit, y)));
    auto p = V::fma(V::set(1.54035093e-4f), s.r, V::set(1.33907364e-3f));
    p = V::fma(p, s.r, V::set(9.61823761e-3f));
    p = V::fma(p, s.r, V::set(5.55035733e-2f));
    p = V::fma(p, s.r, V::set(2.40226492e-1f));
    p = V::fma(p, s.r, V::set(6.93147182e-1f));
    p = V::mul(p, s.r);  // 2^r - 1
    const auto u = V::fma(p, s.power, V::sub(s.power, V::set(1)));
    const auto inverse = V::div(V::set(1), V::add(u, V::set(2)));
    value = V::mul(u, inverse);
    slope = V::mul(V::mul(V::set(4), V::add(u, V::set(1))),
                   V::mul(inverse, inverse));
  }
};

}  // namespace
}  // namespace tessera::kernels
