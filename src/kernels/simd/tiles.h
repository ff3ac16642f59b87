// kernels/simd/tiles.h: products of bf16 pairs with AMX, 32 x 32 sums at a
// time. Only for files that are compiled for AMX-BF16.
//
// A tile has 16 rows of 16 words. One instruction adds the product of a tile of
// A and a tile of B to 16 x 16 sums. A and B are laid out as in product.h, but
// A only by rows. Four tiles of sums, two of A and two of B fill the registers.
#pragma once

#include "kernels/simd/bf16_pairs.h"
#include "kernels/simd/product.h"

namespace tessera::kernels {
namespace {

struct Bf16Tiles : Bf16Pairs {
  static constexpr int64_t kWordStep = 16, kLineStep = 32;
};

// Configures this thread's tile registers, and releases them at the end.
class TileRegisters {
 public:
  TileRegisters() {
    struct alignas(64) {
      uint8_t palette = 1, start = 0, zero[14] = {};
      uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } const shape;
    asm volatile("" ::"r"(&shape) : "memory");  // see multiply_tiles
    _tile_loadconfig(&shape);
  }
  ~TileRegisters() { _tile_release(); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;
};

// A matrix of words. `row`: words from a row to the next; `step`: words from
// one group of 16 words of a row to the next.
struct Lines {
  const float* data = nullptr;
  int64_t row = 0;
  int64_t step = 16;
};

// C[0, m) = A[0, m)[0, n) B[0, n) for 32 lanes, or += with kAdd; m and n are
// whole steps.
template <bool kAdd>
inline void multiply_tiles(Lines a, Lines b, float* c, int64_t c_row, int64_t m,
                           int64_t n) {
  constexpr int64_t kTile = Bf16Tiles::kWordStep;
  // g++ 12 does not know that a load of a tile reads memory.
  asm volatile("" ::: "memory");
  const int64_t c_bytes = c_row * 4, a_bytes = a.row * 4, b_bytes = b.row * 4;
  for (int64_t r = 0; r < m; r += 2 * kTile) {
    float* const upper = c + r * c_row;
    float* const lower = upper + kTile * c_row;
    if constexpr (kAdd) {
      _tile_loadd(0, upper, c_bytes);
      _tile_loadd(1, upper + kTile, c_bytes);
      _tile_loadd(2, lower, c_bytes);
      _tile_loadd(3, lower + kTile, c_bytes);
    } else {
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
    }
    const float* from = a.data + r * a.row;
    const float* with = b.data;
    for (int64_t w = 0; w < n; w += kTile) {
      _tile_loadd(6, with, b_bytes);
      _tile_loadd(4, from, a_bytes);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, with + kTile, b_bytes);
      _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(5, from + kTile * a.row, a_bytes);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
      from += a.step;
      with += kTile * b.row;
    }
    _tile_stored(0, upper, c_bytes);
    _tile_stored(1, upper + kTile, c_bytes);
    _tile_stored(2, lower, c_bytes);
    _tile_stored(3, lower + kTile, c_bytes);
  }
}

// to[d][w] = from[w][d] for w < words and d < dim, both whole tiles.
template <class V>
inline void transpose_words(const float* from, int64_t from_row, int64_t words,
                            int64_t dim, float* to, int64_t to_row) {
  constexpr int kTile = 16;
  for (int64_t w = 0; w < words; w += kTile) {
    for (int64_t d = 0; d < dim; d += kTile) {
      typename V::F block[kTile];
      for (int i = 0; i < kTile; ++i) {
        block[i] = V::load(from + (w + i) * from_row + d);
      }
      V::transpose(block);
      for (int i = 0; i < kTile; ++i) {
        V::store(to + (d + i) * to_row + w, block[i]);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::kernels
