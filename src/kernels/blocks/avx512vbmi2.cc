// kernels/blocks/avx512vbmi2.cc: VBMI2 finds the places of all 64 bits of a
// word at a time.
#include "kernels/blocks/avx512_blocks.h"

namespace tessera::kernels {
namespace {

alignas(64) constexpr uint8_t kPlaces[64] = {
    0,   4,   8,   12,  16,  20,  24,  28,  32,  36,  40,  44,  48,
    52,  56,  60,  64,  68,  72,  76,  80,  84,  88,  92,  96,  100,
    104, 108, 112, 116, 120, 124, 128, 132, 136, 140, 144, 148, 152,
    156, 160, 164, 168, 172, 176, 180, 184, 188, 192, 196, 200, 204,
    208, 212, 216, 220, 224, 228, 232, 236, 240, 244, 248, 252};

struct Vbmi2Blocks : Avx512Blocks {
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
