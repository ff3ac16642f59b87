// kernels/simd/portable.h: four floats at a time in the compiler's own vector
// type, for any machine. No fused multiply-add: a * b + c rounds twice.
#pragma once

#include <cstdint>

namespace tessera::kernels {
namespace {

struct Portable {
  using F = float __attribute__((vector_size(16)));
  using I = int32_t __attribute__((vector_size(16)));
  using U = uint32_t __attribute__((vector_size(16)));
  using M = I;
  static constexpr int kLanes = 4;
  static constexpr int kRows = 4;  // register tiles are kRows x 2 vectors

  static F zero() { return F{0, 0, 0, 0}; }
  static F set(float x) { return F{x, x, x, x}; }
  static F load(const float* p) {
    F a;
    __builtin_memcpy(&a, p, sizeof a);
    return a;
  }
  static void store(float* p, F a) { __builtin_memcpy(p, &a, sizeof a); }
  static F add(F a, F b) { return a + b; }
  static F sub(F a, F b) { return a - b; }
  static F mul(F a, F b) { return a * b; }
  static F div(F a, F b) { return a / b; }
  static F fma(F a, F b, F c) { return a * b + c; }
  // If a or b is NaN, the result is b.
  static F max(F a, F b) { return select(a > b, a, b); }
  static F min(F a, F b) { return select(a < b, a, b); }

  static I load_int(const int32_t* p) {
    I a;
    __builtin_memcpy(&a, p, sizeof a);
    return a;
  }
  static I set_int(int32_t x) { return I{x, x, x, x}; }
  static I as_int(F a) { return reinterpret_cast<I>(a); }
  static F as_float(I a) { return reinterpret_cast<F>(a); }
  static F to_float(I a) { return __builtin_convertvector(a, F); }
  static I add_int(I a, I b) {
    return reinterpret_cast<I>(reinterpret_cast<U>(a) + reinterpret_cast<U>(b));
  }
  static I sub_int(I a, I b) {
    return reinterpret_cast<I>(reinterpret_cast<U>(a) - reinterpret_cast<U>(b));
  }
  static I and_int(I a, I b) { return a & b; }
  template <int kBits>
  static I shift_left(I a) {
    return reinterpret_cast<I>(reinterpret_cast<U>(a) << kBits);
  }
  template <int kBits>
  static I shift_right(I a) {  // arithmetic
    return a >> kBits;
  }

  static M none() { return I{0, 0, 0, 0}; }
  static M or_mask(M a, M b) { return a | b; }
  static M less_unsigned(I a, I b) {
    return reinterpret_cast<M>(reinterpret_cast<U>(a) < reinterpret_cast<U>(b));
  }
  static M equal(F a, F b) { return reinterpret_cast<M>(a == b); }
  static F select(M m, F yes, F no) {
    return as_float((m & as_int(yes)) | (~m & as_int(no)));
  }

  // Loads and stores of kLanes numbers of a 16-bit type.
  static F load_bf16(const uint16_t* p) {
    uint16_t __attribute__((vector_size(8))) words;
    __builtin_memcpy(&words, p, sizeof words);
    return as_float(shift_left<16>(__builtin_convertvector(words, I)));
  }
  static F load_f16(const uint16_t* p) {
    return F{float_of(p[0]), float_of(p[1]), float_of(p[2]), float_of(p[3])};
  }
  static void store_f16(uint16_t* p, F a) {
    for (int i = 0; i < 4; ++i) p[i] = half_of(a[i]);
  }
  // Stores the low half of every word.
  static void store_words_low(uint16_t* p, I a) {
    for (int i = 0; i < 4; ++i) p[i] = static_cast<uint16_t>(a[i]);
  }

  // Transposes 4 x 4 words.
  static void transpose(F (&r)[4]) {
    const F t0{r[0][0], r[1][0], r[2][0], r[3][0]};
    const F t1{r[0][1], r[1][1], r[2][1], r[3][1]};
    const F t2{r[0][2], r[1][2], r[2][2], r[3][2]};
    const F t3{r[0][3], r[1][3], r[2][3], r[3][3]};
    r[0] = t0;
    r[1] = t1;
    r[2] = t2;
    r[3] = t3;
  }

  // Lane i is the sum of the lanes of r[i].
  static F sums(const F (&r)[4]) {
    F t[4] = {r[0], r[1], r[2], r[3]};
    transpose(t);
    return (t[0] + t[1]) + (t[2] + t[3]);
  }

 private:
  static float float_of(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
    const uint32_t exponent = half >> 10 & 31;
    const uint32_t fraction = half & 0x3ff;
    uint32_t bits;
    if (exponent == 31) {
      bits = 0x7f800000 | fraction << 13;
    } else if (exponent != 0) {
      bits = (exponent + 112) << 23 | fraction << 13;
    } else {
      const float tiny = static_cast<float>(fraction) * 0x1p-24f;
      __builtin_memcpy(&bits, &tiny, sizeof bits);
    }
    bits |= sign;
    float x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
  }
  static uint16_t half_of(float x) {
    uint32_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    const auto sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
    bits &= 0x7fffffff;
    uint32_t half;
    if (bits > 0x7f800000) {
      half = 0x7e00;
    } else if (bits >= 0x47800000) {
      half = 0x7c00;
    } else if (bits >= 0x38800000) {  // normal; round to nearest, ties to even
      bits -= 112u << 23;
      half = (bits + 0xfff + (bits >> 13 & 1)) >> 13;
    } else {
      // Adding 0.5 aligns the last place of a subnormal half with the lowest
      // bit of the float.
      float small;
      __builtin_memcpy(&small, &bits, sizeof small);
      small += 0.5f;
      __builtin_memcpy(&bits, &small, sizeof bits);
      half = bits - 0x3f000000;
    }
    return static_cast<uint16_t>(sign | half);
  }
};

}  // namespace
}  // namespace tessera::kernels
