// kernels/simd/product.h: the one inner product of all kernels, and how it
// multiplies.
//
// C[m][lane] += sum over c of A(m, c) * B[c][lane]. One word of A meets all
// lanes, so A is read as it lies in memory, by rows or by columns; B's rows are
// vectors. What stays is packed into B once, what streams past is A.
#pragma once

#include <cstdint>

namespace tessera {
namespace {

// One float a word.
template <class V>
struct FloatWords {
  static constexpr int kPack = 1;
  static typename V::F fma(typename V::F a, typename V::F b, typename V::F c) {
    return V::fma(a, b, c);
  }
};

// How A lies: element (m, c) at a[m * lda + c] or at a[c * lda + m].
enum class Lies : bool { by_rows, by_columns };

// acc += A[0, kM)[0, n) * B[0, n), for vectors [kFrom, kTo) of B's rows.
template <class V, class Words, Lies kLies, int kFrom, int kTo, int kM, int kN>
inline __attribute__((always_inline)) void multiply(
    typename V::F (&acc)[kM][kN], const float* a, int64_t lda, const float* b,
    int64_t ldb, int64_t n) {
  for (int64_t c = 0; c < n; ++c) {
    typename V::F row[kN];
#pragma GCC unroll 4
    for (int j = kFrom; j < kTo; ++j) {
      row[j] = V::load(b + c * ldb + j * V::kLanes);
    }
#pragma GCC unroll 16
    for (int m = 0; m < kM; ++m) {
      const auto x =
          V::set(kLies == Lies::by_rows ? a[m * lda + c] : a[c * lda + m]);
#pragma GCC unroll 4
      for (int j = kFrom; j < kTo; ++j) {
        acc[m][j] = Words::fma(x, row[j], acc[m][j]);
      }
    }
  }
}

// Calls tile<kM>(m) for rows [begin, end), V::kRows at a time, then the rest.
template <class V, int kM, class Tile>
inline __attribute__((always_inline)) void last_rows(int64_t m, int64_t rows,
                                                     Tile&& tile) {
  if constexpr (kM > 0) {
    if (rows == kM) {
      tile.template operator()<kM>(m);
    } else {
      last_rows<V, kM - 1>(m, rows, tile);
    }
  }
}
template <class V, class Tile>
inline __attribute__((always_inline)) void each_tile(int64_t begin, int64_t end,
                                                     Tile&& tile) {
  int64_t m = begin;
  for (; m + V::kRows <= end; m += V::kRows) {
    tile.template operator()<V::kRows>(m);
  }
  last_rows<V, V::kRows - 1>(m, end - m, tile);
}

}  // namespace
}  // namespace tessera
