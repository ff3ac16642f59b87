// kernels/blocks/avx512_blocks.h: what both AVX-512 variants share.
#pragma once

#include <immintrin.h>

#include "kernels/blocks/blocks_kernel.h"

namespace tessera::kernels {
namespace {

// Bits of x where `low` is 1, of y elsewhere.
inline __m512i select(__m512i low, __m512i x, __m512i y) {
  return _mm512_ternarylogic_epi64(low, x, y, 0xca);
}

// One step of turn_square, for rows that are 8 * half rows apart, that is, in
// registers `half` apart.
template <int half>
inline void trade_registers(__m512i* x, uint64_t low) {
  const __m512i mask = _mm512_set1_epi64(static_cast<int64_t>(low));
  for (int at = 0; at < 8; at += 2 * half) {
    for (int i = at; i < at + half; ++i) {
      const __m512i upper = x[i];
      const __m512i lower = x[i + half];
      x[i] = select(mask, upper, _mm512_slli_epi64(lower, 8 * half));
      x[i + half] = select(mask, _mm512_srli_epi64(upper, 8 * half), lower);
    }
  }
}

// The same step for rows within one register. `other` holds the partner of each
// row; bits that the rotation wraps around are not selected.
inline __m512i trade(__m512i x, __m512i other, __m512i shift, __m512i mask) {
  return select(mask, x, _mm512_rolv_epi64(other, shift));
}

inline void turn_in_registers(uint64_t* words) {
  __m512i x[8];
  for (int i = 0; i < 8; ++i) x[i] = _mm512_loadu_si512(words + 8 * i);
  trade_registers<4>(x, 0x00000000ffffffff);
  trade_registers<2>(x, 0x0000ffff0000ffff);
  trade_registers<1>(x, 0x00ff00ff00ff00ff);
  const __m512i by4 = _mm512_setr_epi64(4, 4, 4, 4, 60, 60, 60, 60);
  const __m512i by2 = _mm512_setr_epi64(2, 2, 62, 62, 2, 2, 62, 62);
  const __m512i by1 = _mm512_setr_epi64(1, 63, 1, 63, 1, 63, 1, 63);
  const auto mask_of = [](int64_t low, __mmask8 lower) {
    return _mm512_mask_set1_epi64(_mm512_set1_epi64(low), lower, ~low);
  };
  const __m512i mask4 = mask_of(0x0f0f0f0f0f0f0f0f, 0xf0);
  const __m512i mask2 = mask_of(0x3333333333333333, 0xcc);
  const __m512i mask1 = mask_of(0x5555555555555555, 0xaa);
  for (int i = 0; i < 8; ++i) {
    __m512i v = x[i];
    v = trade(v, _mm512_shuffle_i64x2(v, v, 0x4e), by4, mask4);
    v = trade(v, _mm512_shuffle_i64x2(v, v, 0xb1), by2, mask2);
    v = trade(v, _mm512_shuffle_epi32(v, static_cast<_MM_PERM_ENUM>(0x4e)), by1,
              mask1);
    _mm512_storeu_si512(words + 8 * i, v);
  }
}

struct Avx512Blocks {
  using First = __m512i;
  static First begin() {
    return _mm512_set1_epi32(static_cast<int>(first_entry(0)));
  }
  static First next(First first) {
    return _mm512_add_epi32(first, _mm512_set1_epi32(4 * kSide));
  }

  // Writes 16 entries at a time.
  static uint32_t* put(uint64_t word, First first, uint32_t* to) {
    __m512i all = _mm512_add_epi32(
        first, _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44,
                                 48, 52, 56, 60));
    for (int part = 0; part < 4; ++part, word >>= 16) {
      const auto mask = static_cast<__mmask16>(word);
      _mm512_storeu_si512(to, _mm512_maskz_compress_epi32(mask, all));
      to += __builtin_popcount(mask);
      all = _mm512_add_epi32(all, _mm512_set1_epi32(4 * 16));
    }
    return to;
  }
  static uint64_t pack(const uint8_t* cells) {
    const __m512i v = _mm512_loadu_si512(cells);
    return _mm512_test_epi8_mask(v, v);
  }
  static void turn(uint64_t* words) { turn_in_registers(words); }
  static int64_t count(const uint8_t* bits, int64_t bytes) {
    return count_blocks(bits, bytes);
  }
};

}  // namespace
}  // namespace tessera::kernels
