// kernels/simd/tiles.h: products of bf16 pairs by AMX, 32 x 32 sums at a time.
// Only for files that are compiled for AMX-BF16.
//
// A tile has 16 rows of 16 words. One instruction adds the product of a tile of
// A and one of B to 16 x 16 sums: A and B as product.h has them, but that A
// lies by rows alone. Four tiles of sums, two of A and two of B fill the
// registers.
#pragma once

#include "kernels/simd/bf16_pairs.h"
#include "kernels/simd/product.h"

namespace tessera::kernels {
namespace {

struct Bf16Tiles : Bf16Pairs {
  static constexpr int64_t kWordStep = 16, kLineStep = 32;
};

// The tile registers of this thread, while it lives.
class TileRegisters {
 public:
  TileRegisters() {
    struct alignas(64) {
      uint8_t palette = 1, start = 0, zero[14] = {};
      uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } const shape;
    asm volatile("" ::"r"(&shape) : "memory");  // as in TileProduct::step
    _tile_loadconfig(&shape);
  }
  ~TileRegisters() { _tile_release(); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;
};

// Rows of words, `row` of them apart; `step` from the first word of a row to
// the first one of its next 16.
struct Lines {
  const float* data = nullptr;
  int64_t row = 0;
  int64_t step = 16;
};

// C[0, m) = A[0, m)[0, n) B[0, n) of 32 lanes, or C += it; m and n are whole
// steps. It is done step by step, so that other work may go on between them:
// the unit of tiles is another one than that of vectors.
class TileProduct {
 public:
  TileProduct() = default;
  TileProduct(Lines a, Lines b, float* c, int64_t c_row, int64_t m, int64_t n,
              bool add)
      : a_(a), b_(b), c_(c), c_row_(c_row), m_(m), n_(n), add_(add) {}

  int64_t steps() const { return m_ / Bf16Tiles::kLineStep * (n_ / kTile); }
  bool done() const { return m_ == 0; }

  void step() {
    // g++ 12 does not know that a load of a tile reads memory.
    asm volatile("" ::: "memory");
    float* const lower = c_ + kTile * c_row_;
    if (at_ == 0) {
      if (add_) {
        _tile_loadd(0, c_, c_row_ * 4);
        _tile_loadd(1, c_ + kTile, c_row_ * 4);
        _tile_loadd(2, lower, c_row_ * 4);
        _tile_loadd(3, lower + kTile, c_row_ * 4);
      } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
      }
    }
    const float* const a = a_.data + at_ / kTile * a_.step;
    const float* const b = b_.data + at_ * b_.row;
    _tile_loadd(6, b, b_.row * 4);
    _tile_loadd(4, a, a_.row * 4);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + kTile, b_.row * 4);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + kTile * a_.row, a_.row * 4);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
    at_ += kTile;
    if (at_ < n_) return;
    _tile_stored(0, c_, c_row_ * 4);
    _tile_stored(1, c_ + kTile, c_row_ * 4);
    _tile_stored(2, lower, c_row_ * 4);
    _tile_stored(3, lower + kTile, c_row_ * 4);
    at_ = 0;
    m_ -= 2 * kTile;
    a_.data += 2 * kTile * a_.row;
    c_ += 2 * kTile * c_row_;
  }

  void finish() {
    while (!done()) step();
  }

 private:
  static constexpr int64_t kTile = 16;

  Lines a_, b_;
  float* c_ = nullptr;
  int64_t c_row_ = 0;
  int64_t m_ = 0, n_ = 0;
  bool add_ = false;
  int64_t at_ = 0;  // word of the block that is under way
};

// Products that are done one after another while something else is.
class TileProducts {
 public:
  // `ticks` will come, a guess.
  TileProducts(TileProduct first, TileProduct second, int64_t ticks)
      : first_(first), second_(second) {
    const int64_t steps = first_.steps() + second_.steps();
    every_ = steps == 0 ? int64_t{1} << 40 : ticks / steps;
    left_ = every_;
  }
  ~TileProducts() {
    first_.finish();
    second_.finish();
  }
  TileProducts(const TileProducts&) = delete;
  TileProducts& operator=(const TileProducts&) = delete;

  void tick() {
    if (--left_ > 0) return;
    left_ = every_;
    if (!first_.done()) {
      first_.step();
    } else if (!second_.done()) {
      second_.step();
    }
  }

 private:
  TileProduct first_, second_;
  int64_t every_ = 0, left_ = 0;
};

// to[d][w] = from[w][d] for w below `words`, d below `dim`, whole tiles both.
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
