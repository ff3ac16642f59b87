// kernels/simd/stage.h: copies tensor rows to a kernel's scratch in the layout
// of the products, and results back.
#pragma once

#include <cstdint>

#include "tessera/attention.h"

namespace tessera::kernels {
namespace {

inline const void* row_at(const void* data, Dtype dtype, int64_t element) {
  const int64_t width = dtype == Dtype::f32 ? 4 : 2;
  return static_cast<const char*>(data) + element * width;
}
inline void* row_at(void* data, Dtype dtype, int64_t element) {
  const int64_t width = dtype == Dtype::f32 ? 4 : 2;
  return static_cast<char*>(data) + element * width;
}

// V::kLanes numbers of a row, from number i on, as floats.
template <class V>
inline typename V::F load_row(const void* row, Dtype dtype, int64_t i) {
  if (dtype == Dtype::f32) return V::load(static_cast<const float*>(row) + i);
  const auto* p = static_cast<const uint16_t*>(row) + i;
  return dtype == Dtype::bf16 ? V::load_bf16(p) : V::load_f16(p);
}

// load_row() where only `count` numbers are left; the other lanes are 0.
template <class V>
inline typename V::F load_some(const void* row, Dtype dtype, int64_t i,
                               int64_t count) {
  if (dtype == Dtype::f32) {
    float some[V::kLanes] = {};
    __builtin_memcpy(some, static_cast<const float*>(row) + i,
                     static_cast<size_t>(count) * 4);
    return V::load(some);
  }
  uint16_t some[V::kLanes] = {};
  __builtin_memcpy(some, static_cast<const uint16_t*>(row) + i,
                   static_cast<size_t>(count) * 2);
  return dtype == Dtype::bf16 ? V::load_bf16(some) : V::load_f16(some);
}

// Number i of a row.
template <class V>
inline float number_at(const void* row, Dtype dtype, int64_t i) {
  float some[V::kLanes];
  V::store(some, load_some<V>(row, dtype, i, 1));
  return some[0];
}

inline bool is_finite(float x) { return x - x == 0; }

// True if all `n` floats are finite; n is a multiple of kLanes.
template <class V>
inline bool all_finite(const float* p, int64_t n) {
  auto sum = V::zero();  // each term is 0 or NaN
  for (int64_t i = 0; i < n; i += V::kLanes) {
    sum = V::fma(V::load(p + i), V::zero(), sum);
  }
  float lane[V::kLanes];
  V::store(lane, sum);
  for (const float x : lane) {
    if (!is_finite(x)) return false;
  }
  return true;
}

// True if all numbers of a row are finite.
template <class V>
inline bool row_is_finite(const void* row, Dtype dtype, int64_t dim) {
  auto sum = V::zero();
  for (int64_t i = 0; i < dim; i += V::kLanes) {
    const int64_t left = dim - i;
    const auto x = left >= V::kLanes ? load_row<V>(row, dtype, i)
                                     : load_some<V>(row, dtype, i, left);
    sum = V::fma(x, V::zero(), sum);
  }
  float lane[V::kLanes];
  V::store(lane, sum);
  for (const float x : lane) {
    if (!is_finite(x)) return false;
  }
  return true;
}

// Calls visit(row, d, x) for every non-finite number of the live rows in [0,
// rows); null `live`: all rows are live.
template <class V, class Visit>
inline void each_odd_number(const void* data, Dtype dtype, int64_t stride,
                            int64_t rows, const uint8_t* live, int64_t dim,
                            Visit&& visit) {
  for (int64_t r = 0; r < rows; ++r) {
    if (live != nullptr && live[r] == 0) continue;
    const void* const row = row_at(data, dtype, r * stride);
    if (row_is_finite<V>(row, dtype, dim)) continue;
    for (int64_t d = 0; d < dim; ++d) {
      const float x = number_at<V>(row, dtype, d);
      if (!is_finite(x)) visit(r, d, x);
    }
  }
}

// True if query r of the chunk may attend to key k. A layer has `rows` bounds.
template <class Chunk>
inline bool is_legal(const Chunk& chunk, int64_t rows, int64_t r, int64_t k) {
  for (int32_t layer = 0; layer < chunk.layers; ++layer) {
    const int64_t at = layer * rows + r;
    if (chunk.first[at] <= k && k < chunk.last[at]) return true;
  }
  return chunk.layers == 0;
}

// Sets number d of staged row `r` to 0. Rows of words are `ld` floats apart;
// each holds one row of floats or an interleaved pair of rows.
template <class Words>
inline void clear_number(float* staged, int64_t ld, int64_t r, int64_t d) {
  float* const word = staged + r / Words::kPack * ld + d;
  if constexpr (Words::kPack == 1) {
    *word = 0;
  } else {
    uint16_t pair[2];
    __builtin_memcpy(pair, word, sizeof pair);
    pair[r % 2] = 0;
    __builtin_memcpy(word, pair, sizeof pair);
  }
}

// Lane `lane` of row r, where rows are stored singly or as interleaved pairs.
template <class Words>
inline float lane_at(const float* rows, int64_t lanes, int64_t r,
                     int64_t lane) {
  const float* const word = rows + r / Words::kPack * lanes + lane;
  if constexpr (Words::kPack == 1) {
    return *word;
  } else {
    uint16_t pair[2];
    __builtin_memcpy(pair, word, sizeof pair);
    const uint32_t bits = static_cast<uint32_t>(pair[r % 2]) << 16;
    float x;
    __builtin_memcpy(&x, &bits, sizeof x);
    return x;
  }
}

// Rounds to bf16, to nearest, ties to even; a NaN stays a NaN.
template <class V>
inline typename V::I bf16_words(typename V::F a) {
  const auto bits = V::as_int(a);
  const auto odd = V::and_int(V::template shift_right<16>(bits), V::set_int(1));
  const auto rounded = V::template shift_right<16>(
      V::add_int(V::add_int(bits, V::set_int(0x7fff)), odd));
  const auto nan = V::set_int(0x7fc0);
  return V::as_int(
      V::select(V::equal(a, a), V::as_float(rounded), V::as_float(nan)));
}

template <class V>
inline void store_row(void* row, Dtype dtype, int64_t i, typename V::F a) {
  if (dtype == Dtype::f32) {
    V::store(static_cast<float*>(row) + i, a);
  } else if (dtype == Dtype::bf16) {
    V::store_words_low(static_cast<uint16_t*>(row) + i, bf16_words<V>(a));
  } else {
    V::store_f16(static_cast<uint16_t*>(row) + i, a);
  }
}

template <class V>
inline void store_some(void* row, Dtype dtype, int64_t i, int64_t count,
                       typename V::F a) {
  if (dtype == Dtype::f32) {
    float some[V::kLanes];
    V::store(some, a);
    __builtin_memcpy(static_cast<float*>(row) + i, some,
                     static_cast<size_t>(count) * 4);
  } else {
    uint16_t some[V::kLanes];
    store_row<V>(some, dtype, 0, a);
    __builtin_memcpy(static_cast<uint16_t*>(row) + i, some,
                     static_cast<size_t>(count) * 2);
  }
}

// Copies a row of `dim` numbers as words: floats, or pairs of neighbouring
// bf16.
template <class V, class Words>
inline void stage_row(const void* row, Dtype dtype, int64_t dim, float* to) {
  if constexpr (Words::kPack == 2) {
    __builtin_memcpy(to, row, static_cast<size_t>(dim) * 2);
  } else {
    int64_t i = 0;
    for (; i + V::kLanes <= dim; i += V::kLanes) {
      V::store(to + i, load_row<V>(row, dtype, i));
    }
    if (i < dim) {
      float some[V::kLanes];
      V::store(some, load_some<V>(row, dtype, i, dim - i));
      __builtin_memcpy(to + i, some, static_cast<size_t>(dim - i) * 4);
    }
  }
}

// stage_row(), or zeros if `row` is null.
template <class V, class Words>
inline void stage_live(const void* row, Dtype dtype, int64_t dim, float* to) {
  if (row != nullptr) {
    stage_row<V, Words>(row, dtype, dim, to);
  } else {
    __builtin_memset(to, 0, static_cast<size_t>(dim / Words::kPack) * 4);
  }
}

// Packs rows [0, rows) of `dim` numbers into B: word c of row r goes to to[c *
// lanes + r] for r < lanes. Rows that are absent or not live give 0; null
// `live`: all rows are live.
template <class V, class Words>
inline void pack_lanes(const void* data, Dtype dtype, int64_t stride,
                       int64_t rows, const uint8_t* live, int64_t dim,
                       int64_t lanes, float* to) {
  const int64_t words = dim / Words::kPack;
  // A pair of bf16 is moved like a float.
  const Dtype as = Words::kPack == 2 ? Dtype::f32 : dtype;
  for (int64_t r = 0; r < lanes; r += V::kLanes) {
    for (int64_t c = 0; c < words; c += V::kLanes) {
      const int64_t left = words - c;
      typename V::F block[V::kLanes];
      for (int i = 0; i < V::kLanes; ++i) {
        if (r + i >= rows || (live != nullptr && live[r + i] == 0)) {
          block[i] = V::zero();
          continue;
        }
        const void* row = row_at(data, dtype, (r + i) * stride);
        block[i] = left >= V::kLanes ? load_row<V>(row, as, c)
                                     : load_some<V>(row, as, c, left);
      }
      V::transpose(block);
      for (int i = 0; i < V::kLanes && i < left; ++i) {
        V::store(to + (c + i) * lanes + r, block[i]);
      }
    }
  }
}

// The inverse of pack_lanes: writes from[d * lanes + r] * factor[r] to number d
// of row r.
template <class V>
inline void unpack_lanes(const float* from, int64_t lanes, const float* factor,
                         int64_t rows, int64_t dim, void* data, Dtype dtype,
                         int64_t stride) {
  for (int64_t r = 0; r < rows; r += V::kLanes) {
    const auto f = V::load(factor + r);
    for (int64_t d = 0; d < dim; d += V::kLanes) {
      const int64_t left = dim - d;
      typename V::F block[V::kLanes];
      for (int i = 0; i < V::kLanes; ++i) {
        block[i] = i < left ? V::mul(V::load(from + (d + i) * lanes + r), f)
                            : V::zero();
      }
      V::transpose(block);
      for (int i = 0; i < V::kLanes && r + i < rows; ++i) {
        void* row = row_at(data, dtype, (r + i) * stride);
        if (left >= V::kLanes) {
          store_row<V>(row, dtype, d, block[i]);
        } else {
          store_some<V>(row, dtype, d, left, block[i]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::kernels
