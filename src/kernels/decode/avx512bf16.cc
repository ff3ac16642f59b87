// kernels/decode/avx512bf16.cc: the decode kernel for AVX512-BF16.
#include "kernels/decode/decode_kernel.h"
#include "kernels/simd/bf16_pairs.h"

namespace tessera::kernels {
namespace {

// Loads rows of bf16 in place: keys as pairs of neighbouring numbers, values as
// pairs of the same number of two rows.
struct PairRows {
  using Words = Bf16Pairs;
  static constexpr int kDims = 32;

  static __m512 load(const void* row, int64_t i) {
    return _mm512_loadu_ps(at(row, i));
  }
  static __m512 load(const void* row, int64_t i, int64_t count) {
    return _mm512_castsi512_ps(
        _mm512_maskz_loadu_epi16((__mmask32{1} << count) - 1, at(row, i)));
  }
  static void load_values(const void* const* rows, int64_t i, __m512* v) {
    Words::interleave(load(rows[0], i), load(rows[1], i), v);
  }
  static void load_values(const void* const* rows, int64_t i, int64_t count,
                          __m512* v) {
    Words::interleave(load(rows[0], i, count), load(rows[1], i, count), v);
  }

 private:
  static const uint16_t* at(const void* row, int64_t i) {
    return static_cast<const uint16_t*>(row) + i;
  }
};

}  // namespace

void decode_avx512bf16_bf16_pairs(const DecodeTask& task) {
  Decode<Avx512, PairRows>(task).run();
}

void decode_merge_avx512bf16_bf16_pairs(const DecodeMerge& task) {
  merge_parts<Avx512>(task);
}

}  // namespace tessera::kernels
