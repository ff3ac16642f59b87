// kernels/blocks/avx512vbmi2.cc: VBMI2 finds the positions of all 64 bits of a
// word at once, GFNI transposes squares of 8 x 8 bits, VPOPCNTDQ counts.
#include "kernels/blocks/avx512_blocks.h"

namespace tessera::kernels {
namespace {

alignas(64) constexpr uint8_t kPlaces[64] = {
    0,   4,   8,   12,  16,  20,  24,  28,  32,  36,  40,  44,  48,
    52,  56,  60,  64,  68,  72,  76,  80,  84,  88,  92,  96,  100,
    104, 108, 112, 116, 120, 124, 128, 132, 136, 140, 144, 148, 152,
    156, 160, 164, 168, 172, 176, 180, 184, 188, 192, 196, 200, 204,
    208, 212, 216, 220, 224, 228, 232, 236, 240, 244, 248, 252};

// Permutation that transposes 8 x 8 bytes; with `last`, the rows are taken last
// to first.
struct Moves {
  alignas(64) uint8_t from[64];
};
constexpr Moves moves_of(bool last) {
  Moves out{};
  for (int r = 0; r < 8; ++r) {
    for (int c = 0; c < 8; ++c) {
      out.from[8 * c + (last ? 7 - r : r)] = static_cast<uint8_t>(8 * r + c);
    }
  }
  return out;
}
constexpr Moves kTurn = moves_of(false), kTurnLast = moves_of(true);

inline __m512i move(__m512i x, const Moves& moves) {
  return _mm512_permutexvar_epi8(_mm512_load_si512(moves.from), x);
}

// A GFNI product with the identity matrix transposes each square of 8 x 8 bits;
// the instruction takes rows last to first. The squares are then transposed
// among each other: between registers in units of 8 bytes, within a register by
// bytes.
inline void turn_by_squares(uint64_t* words) {
  const __m512i unit =
      _mm512_set1_epi64(static_cast<int64_t>(0x8040201008040201));
  __m512i x[8], pair[8];
  for (int i = 0; i < 8; ++i) {
    x[i] = _mm512_gf2p8affine_epi64_epi8(
        unit, move(_mm512_loadu_si512(words + 8 * i), kTurnLast), 0);
  }
  for (int i = 0; i < 8; i += 2) {
    pair[i] = _mm512_unpacklo_epi64(x[i], x[i + 1]);
    pair[i + 1] = _mm512_unpackhi_epi64(x[i], x[i + 1]);
  }
  const auto put = [&](int i, __m512i squares) {
    _mm512_storeu_si512(words + 8 * i, move(squares, kTurn));
  };
  for (int odd = 0; odd < 2; ++odd) {
    const __m512i* const p = pair + odd;
    const __m512i even02 = _mm512_shuffle_i64x2(p[0], p[2], 0x88);
    const __m512i odd02 = _mm512_shuffle_i64x2(p[0], p[2], 0xdd);
    const __m512i even46 = _mm512_shuffle_i64x2(p[4], p[6], 0x88);
    const __m512i odd46 = _mm512_shuffle_i64x2(p[4], p[6], 0xdd);
    put(odd, _mm512_shuffle_i64x2(even02, even46, 0x88));
    put(odd + 2, _mm512_shuffle_i64x2(odd02, odd46, 0x88));
    put(odd + 4, _mm512_shuffle_i64x2(even02, even46, 0xdd));
    put(odd + 6, _mm512_shuffle_i64x2(odd02, odd46, 0xdd));
  }
}

struct Vbmi2Blocks : Avx512Blocks {
  static void turn(uint64_t* words) { turn_by_squares(words); }
  static int64_t count(const uint8_t* bits, int64_t bytes) {
    __m512i sums = _mm512_setzero_si512();
    int64_t at = 0;
    for (; at + 64 <= bytes; at += 64) {
      sums = _mm512_add_epi64(
          sums, _mm512_popcnt_epi64(_mm512_loadu_si512(bits + at)));
    }
    return _mm512_reduce_add_epi64(sums) + count_blocks(bits + at, bytes - at);
  }
  static uint32_t* put(uint64_t word, First first, uint32_t* to) {
    const __m512i places =
        _mm512_maskz_compress_epi8(word, _mm512_load_si512(kPlaces));
    const auto store = [&](uint32_t* at, __m128i part) {
      _mm512_storeu_si512(at,
                          _mm512_add_epi32(first, _mm512_cvtepu8_epi32(part)));
    };
    const int64_t count = __builtin_popcountll(word);
    store(to, _mm512_castsi512_si128(places));
    if (count > 16) store(to + 16, _mm512_extracti32x4_epi32(places, 1));
    if (count > 32) {
      store(to + 32, _mm512_extracti32x4_epi32(places, 2));
      store(to + 48, _mm512_extracti32x4_epi32(places, 3));
    }
    return to + count;
  }
};

}  // namespace

BLOCK_LISTS(avx512vbmi2, Vbmi2Blocks)

}  // namespace tessera::kernels
