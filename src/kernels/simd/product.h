// kernels/simd/product.h: the matrix product that all kernels share.
//
// C[m][lane] += sum over c of A(m, c) * B[c][lane]. One word of A is broadcast
// to all lanes, so A is read in memory order, by rows or by columns; rows of B
// are vectors. The operand that stays in scratch is packed into B once; A is
// the operand that streams through.
#pragma once

#include <cstdint>

namespace tessera::kernels {
namespace {

// Words of one float each.
template <class V>
struct FloatWords {
  static constexpr int kPack = 1;
  // A product takes kWordStep words of a row and kLineStep rows at a time.
  static constexpr int64_t kWordStep = 1, kLineStep = 1;
  static typename V::F fma(typename V::F a, typename V::F b, typename V::F c) {
    return V::fma(a, b, c);
  }
};

// Layout of A: element (m, c) is at a[m * lda + c] or at a[c * lda + m].
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

constexpr int64_t in_steps(int64_t n, int64_t step) {
  return (n + step - 1) / step * step;
}

// The range [begin, end); empty if end <= begin.
struct Stretch {
  int64_t begin = 0, end = 0;
  bool empty() const { return begin >= end; }
};

// Splits the stretches of a panel's two vectors into parts that one vector has
// and the part that both have. Calls part<from, to>(stretch) for vectors [from,
// to); a part may be empty.
template <class Part>
inline __attribute__((always_inline)) void each_part(Stretch a, Stretch b,
                                                     Part&& part) {
  int64_t low = a.begin > b.begin ? a.begin : b.begin;
  int64_t high = a.end < b.end ? a.end : b.end;
  // Without a common part, each stretch lies wholly before or after `low`.
  if (low >= high) low = high = a.begin < b.begin ? a.end : b.end;
  const auto before = [low](Stretch s) {
    return Stretch{s.begin, s.end < low ? s.end : low};
  };
  const auto after = [high](Stretch s) {
    return Stretch{s.begin > high ? s.begin : high, s.end};
  };
  part.template operator()<0, 1>(before(a));
  part.template operator()<1, 2>(before(b));
  part.template operator()<0, 2>(Stretch{low, high});
  part.template operator()<0, 1>(after(a));
  part.template operator()<1, 2>(after(b));
}

}  // namespace
}  // namespace tessera::kernels
