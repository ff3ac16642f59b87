// kernels/simd/avx2.h: eight floats at a time. Only for files that are
// compiled for AVX2, FMA and F16C.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace tessera::kernels {
namespace {

struct Avx2 {
  using F = __m256;
  using I = __m256i;
  using M = __m256;
  static constexpr int kLanes = 8;
  static constexpr int kRows = 6;  // register tiles are kRows x 2 vectors

  static F zero() { return _mm256_setzero_ps(); }
  static F set(float x) { return _mm256_set1_ps(x); }
  static F load(const float* p) { return _mm256_loadu_ps(p); }
  static void store(float* p, F a) { _mm256_storeu_ps(p, a); }
  static F add(F a, F b) { return _mm256_add_ps(a, b); }
  static F sub(F a, F b) { return _mm256_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm256_mul_ps(a, b); }
  static F div(F a, F b) { return _mm256_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
  // If a or b is NaN, the result is b.
  static F max(F a, F b) { return _mm256_max_ps(a, b); }
  static F min(F a, F b) { return _mm256_min_ps(a, b); }

  static I load_int(const int32_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static I set_int(int32_t x) { return _mm256_set1_epi32(x); }
  static I as_int(F a) { return _mm256_castps_si256(a); }
  static F as_float(I a) { return _mm256_castsi256_ps(a); }
  static F to_float(I a) { return _mm256_cvtepi32_ps(a); }
  static I add_int(I a, I b) { return _mm256_add_epi32(a, b); }
  static I sub_int(I a, I b) { return _mm256_sub_epi32(a, b); }
  static I and_int(I a, I b) { return _mm256_and_si256(a, b); }
  template <int kBits>
  static I shift_left(I a) {
    return _mm256_slli_epi32(a, kBits);
  }
  template <int kBits>
  static I shift_right(I a) {  // arithmetic
    return _mm256_srai_epi32(a, kBits);
  }

  static M none() { return _mm256_setzero_ps(); }
  static M or_mask(M a, M b) { return _mm256_or_ps(a, b); }
  static M less_unsigned(I a, I b) {
    const I flip = _mm256_set1_epi32(INT32_MIN);
    return as_float(_mm256_cmpgt_epi32(_mm256_xor_si256(b, flip),
                                       _mm256_xor_si256(a, flip)));
  }
  static M equal(F a, F b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }
  static F select(M m, F yes, F no) { return _mm256_blendv_ps(no, yes, m); }

  // Loads and stores of kLanes numbers of a 16-bit type.
  static F load_bf16(const uint16_t* p) {
    const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return as_float(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
  }
  static F load_f16(const uint16_t* p) {
    return _mm256_cvtph_ps(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static void store_f16(uint16_t* p, F a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm256_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
  }
  // Stores the low half of every word.
  static void store_words_low(uint16_t* p, I a) {
    const I low = _mm256_and_si256(a, _mm256_set1_epi32(0xffff));
    const I packed = _mm256_packus_epi32(low, low);
    _mm_storeu_si128(
        reinterpret_cast<__m128i*>(p),
        _mm256_castsi256_si128(_mm256_permute4x64_epi64(packed, 0x08)));
  }

  // Transposes 8 x 8 words.
  static void transpose(F (&r)[8]) {
    F t[8];
    for (int i = 0; i < 8; i += 2) {
      t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
      r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
      r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
      r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
      r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; ++i) {
      t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
      t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
    for (int i = 0; i < 8; ++i) r[i] = t[i];
  }

  // Lane i is the sum of the lanes of r[i].
  static F sums(const F (&r)[8]) {
    F half[4];
    for (int i = 0; i < 4; ++i) {
      half[i] = add(_mm256_permute2f128_ps(r[i], r[i + 4], 0x20),
                    _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
    const F a = add(_mm256_unpacklo_ps(half[0], half[1]),
                    _mm256_unpackhi_ps(half[0], half[1]));
    const F b = add(_mm256_unpacklo_ps(half[2], half[3]),
                    _mm256_unpackhi_ps(half[2], half[3]));
    return add(_mm256_shuffle_ps(a, b, 0x44), _mm256_shuffle_ps(a, b, 0xee));
  }
};

}  // namespace
}  // namespace tessera::kernels
