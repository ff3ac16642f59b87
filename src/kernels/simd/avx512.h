// kernels/simd/avx512.h: sixteen floats at a time. Only for files that are
// compiled for AVX-512 (F, BW, DQ, VL).
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace tessera::kernels {
namespace {

struct Avx512 {
  using F = __m512;
  using I = __m512i;
  using M = __mmask16;
  static constexpr int kLanes = 16;
  static constexpr int kRows = 8;  // register tiles are kRows x 2 vectors

  static F zero() { return _mm512_setzero_ps(); }
  static F set(float x) { return _mm512_set1_ps(x); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static void store(float* p, F a) { _mm512_storeu_ps(p, a); }
  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  // If a or b is NaN, the result is b.
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F min(F a, F b) { return _mm512_min_ps(a, b); }

  static I load_int(const int32_t* p) { return _mm512_loadu_si512(p); }
  static I set_int(int32_t x) { return _mm512_set1_epi32(x); }
  static I as_int(F a) { return _mm512_castps_si512(a); }
  static F as_float(I a) { return _mm512_castsi512_ps(a); }
  static F to_float(I a) { return _mm512_cvtepi32_ps(a); }
  static I add_int(I a, I b) { return _mm512_add_epi32(a, b); }
  static I sub_int(I a, I b) { return _mm512_sub_epi32(a, b); }
  static I and_int(I a, I b) { return _mm512_and_si512(a, b); }
  template <int kBits>
  static I shift_left(I a) {
    return _mm512_slli_epi32(a, kBits);
  }
  template <int kBits>
  static I shift_right(I a) {  // arithmetic
    return _mm512_srai_epi32(a, kBits);
  }

  static M none() { return 0; }
  static M or_mask(M a, M b) { return static_cast<M>(a | b); }
  static M less_unsigned(I a, I b) { return _mm512_cmplt_epu32_mask(a, b); }
  static M equal(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
  static M above(F a, F b) { return _mm512_cmp_ps_mask(a, b, _CMP_GT_OQ); }
  static F select(M m, F yes, F no) { return _mm512_mask_blend_ps(m, no, yes); }

  // Loads and stores of kLanes numbers of a 16-bit type.
  static F load_bf16(const uint16_t* p) {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return as_float(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16));
  }
  static F load_f16(const uint16_t* p) {
    return _mm512_cvtph_ps(
        _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static void store_f16(uint16_t* p, F a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(a, _MM_FROUND_TO_NEAREST_INT));
  }
  // Stores the low half of every word.
  static void store_words_low(uint16_t* p, I a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtepi32_epi16(a));
  }

  // Transposes 16 x 16 words.
  static void transpose(F (&r)[16]) {
    F t[16];
    for (int i = 0; i < 16; i += 2) {
      t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
      r[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
      r[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
      r[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
      r[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int h = 0; h < 16; h += 8) {
      for (int i = h; i < h + 4; ++i) {
        t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
      }
    }
    for (int i = 0; i < 8; ++i) {
      r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
      r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
    }
  }

  // Lane i is the sum of the lanes of r[i].
  static F sums(const F (&r)[16]) {
    F half[8], quarter[4];
    for (int i = 0; i < 8; ++i) {  // r[n] and r[n + 4], n = i / 4 * 8 + i % 4
      const F a = r[i / 4 * 8 + i % 4], b = r[i / 4 * 8 + i % 4 + 4];
      half[i] = add(_mm512_shuffle_f32x4(a, b, 0x44),
                    _mm512_shuffle_f32x4(a, b, 0xee));
    }
    for (int i = 0; i < 4; ++i) {
      quarter[i] = add(_mm512_shuffle_f32x4(half[i], half[i + 4], 0x88),
                       _mm512_shuffle_f32x4(half[i], half[i + 4], 0xdd));
    }
    const F a = add(_mm512_unpacklo_ps(quarter[0], quarter[1]),
                    _mm512_unpackhi_ps(quarter[0], quarter[1]));
    const F b = add(_mm512_unpacklo_ps(quarter[2], quarter[3]),
                    _mm512_unpackhi_ps(quarter[2], quarter[3]));
    return add(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
  }
};

}  // namespace
}  // namespace tessera::kernels
