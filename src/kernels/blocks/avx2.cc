// kernels/blocks/avx2.cc: eight blocks at a time, with a table of the positions
// of the set bits of a byte.
#include <immintrin.h>

#include "kernels/blocks/blocks_kernel.h"

namespace tessera::kernels {
namespace {

struct Places {
  uint8_t of[256][8];  // 4 * position, as in an entry
};
constexpr Places places() {
  Places out{};
  for (int byte = 0; byte < 256; ++byte) {
    int n = 0;
    for (int i = 0; i < 8; ++i) {
      if (byte >> i & 1) out.of[byte][n++] = static_cast<uint8_t>(4 * i);
    }
  }
  return out;
}
constexpr Places kPlaces = places();

struct Avx2Blocks {
  using First = __m256i;
  static First begin() {
    return _mm256_set1_epi32(static_cast<int>(first_entry(0)));
  }
  static First next(First first) {
    return _mm256_add_epi32(first, _mm256_set1_epi32(4 * kSide));
  }

  static uint32_t* put(uint64_t word, First first, uint32_t* to) {
    const __m256i byte_on = _mm256_set1_epi32(4 * 8);
    for (; word != 0; word >>= 8, first = _mm256_add_epi32(first, byte_on)) {
      const auto byte = static_cast<uint8_t>(word);
      const __m128i at =
          _mm_loadl_epi64(reinterpret_cast<const __m128i*>(kPlaces.of[byte]));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                          _mm256_add_epi32(first, _mm256_cvtepu8_epi32(at)));
      to += __builtin_popcount(byte);
    }
    return to;
  }
  static uint64_t pack(const uint8_t* cells) {
    uint64_t word = 0;
    for (int half = 0; half < 2; ++half) {
      const __m256i v = _mm256_loadu_si256(
          reinterpret_cast<const __m256i*>(cells + 32 * half));
      const auto none = static_cast<uint32_t>(
          _mm256_movemask_epi8(_mm256_cmpeq_epi8(v, _mm256_setzero_si256())));
      word |= uint64_t{~none} << (32 * half);
    }
    return word;
  }
  static void turn(uint64_t* words) { turn_square(words); }
  static int64_t count(const uint8_t* bits, int64_t bytes) {
    return count_blocks(bits, bytes);
  }
};

}  // namespace

BLOCK_LISTS(avx2, Avx2Blocks)

}  // namespace tessera::kernels
