// tests/simd_parts_kernel.h: simd_parts.h for any vector type. It is included
// by one file for each ISA, so all is in an anonymous namespace.
#pragma once

#include "kernels/simd/math.h"
#include "kernels/simd/product.h"
#include "kernels/simd/stage.h"
#include "tests/simd_parts.h"

namespace tessera::testing {

SimdParts simd_parts_avx2();
SimdParts simd_parts_avx512();

namespace {

template <class V, kernels::Lies kLies>
void multiply_rows(const float* a, int64_t lda, const float* b, int64_t n,
                   int64_t rows, float* c) {
  constexpr int64_t kWidth = 2 * V::kLanes;
  kernels::each_tile<V>(0, rows, [&]<int kM>(int64_t m) {
    typename V::F acc[kM][2];
    for (int i = 0; i < kM; ++i) {
      for (int j = 0; j < 2; ++j) {
        acc[i][j] = V::load(c + (m + i) * kWidth + j * V::kLanes);
      }
    }
    const float* const first =
        kLies == kernels::Lies::by_rows ? a + m * lda : a + m;
    kernels::multiply<V, kernels::FloatWords<V>, kLies, 0, 2>(acc, first, lda,
                                                              b, kWidth, n);
    for (int i = 0; i < kM; ++i) {
      for (int j = 0; j < 2; ++j) {
        V::store(c + (m + i) * kWidth + j * V::kLanes, acc[i][j]);
      }
    }
  });
}

template <class V>
void multiply_either(const float* a, int64_t lda, bool by_columns,
                     const float* b, int64_t n, int64_t rows, float* c) {
  if (by_columns) {
    multiply_rows<V, kernels::Lies::by_columns>(a, lda, b, n, rows, c);
  } else {
    multiply_rows<V, kernels::Lies::by_rows>(a, lda, b, n, rows, c);
  }
}

template <class V>
void slope_array(const float* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; i += V::kLanes) {
    V::store(to + i, kernels::Tanh<V>(V::load(from + i)).slope);
  }
}

template <class V>
SimdParts simd_parts_of() {
  using Words = kernels::FloatWords<V>;
  return {V::kLanes,
          V::kRows,
          kernels::row_is_finite<V>,
          kernels::stage_row<V, Words>,
          kernels::pack_lanes<V, Words>,
          kernels::unpack_lanes<V>,
          multiply_either<V>,
          slope_array<V>};
}

}  // namespace
}  // namespace tessera::testing
