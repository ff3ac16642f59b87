// kernels/simd/bf16_pairs.h: two bf16 numbers a word, multiplied and added in
// pairs. Only for files that are compiled for AVX512-BF16.
#pragma once

#include "kernels/simd/avx512.h"

namespace tessera::kernels {
namespace {

struct Bf16Pairs {
  static constexpr int kPack = 2;
  static constexpr int64_t kWordStep = 1, kLineStep = 1;

  static __m512bh as_pairs(__m512 a) { return reinterpret_cast<__m512bh>(a); }
  static __m512 fma(__m512 a, __m512 b, __m512 c) {
    return _mm512_dpbf16_ps(c, as_pairs(a), as_pairs(b));
  }

  // Words (low, high), lane by lane.
  static __m512 pair(__m512 low, __m512 high) {
    const __m512i both =
        reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low));
    return _mm512_castsi512_ps(_mm512_permutexvar_epi16(of_two(), both));
  }

  // Word d holds number d of both rows; a null row counts as zeros.
  static void stage_pair(const void* row, const void* next, int64_t dim,
                         float* to) {
    const auto* a = static_cast<const uint16_t*>(row);
    const auto* b = static_cast<const uint16_t*>(next);
    for (int64_t d = 0; d < dim; d += 16) {
      const __mmask16 some =
          dim - d >= 16 ? 0xffff : static_cast<__mmask16>((1 << (dim - d)) - 1);
      const __m256i low = a == nullptr ? _mm256_setzero_si256()
                                       : _mm256_maskz_loadu_epi16(some, a + d);
      const __m256i high = b == nullptr ? _mm256_setzero_si256()
                                        : _mm256_maskz_loadu_epi16(some, b + d);
      const __m512i words =
          _mm512_or_si512(_mm512_cvtepu16_epi32(low),
                          _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
      _mm512_mask_storeu_epi32(to + d, some, words);
    }
  }

  // Interleaves 32 numbers of a and of b into words (a_i, b_i).
  static void interleave(__m512 a, __m512 b, __m512* to) {
    const __m512i low = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11,
                                         42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37,
                                         5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i high = _mm512_add_epi16(low, _mm512_set1_epi16(16));
    const __m512i x = _mm512_castps_si512(a), y = _mm512_castps_si512(b);
    to[0] = _mm512_castsi512_ps(_mm512_permutex2var_epi16(x, low, y));
    to[1] = _mm512_castsi512_ps(_mm512_permutex2var_epi16(x, high, y));
  }

  // Stores 16 numbers as 8 words, each a pair of neighbours.
  static void store_row(float* to, __m512 a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                        reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(a)));
  }

 private:
  static __m512i of_two() {
    return _mm512_set_epi16(31, 15, 30, 14, 29, 13, 28, 12, 27, 11, 26, 10, 25,
                            9, 24, 8, 23, 7, 22, 6, 21, 5, 20, 4, 19, 3, 18, 2,
                            17, 1, 16, 0);
  }
};

}  // namespace
}  // namespace tessera::kernels
