// kernels/backward/backward_tiles.h: the backward kernel with AMX tile
// products.
//
// Tile products read A by rows only, so the staged pairs of Q and dout are
// transposed for products 3 and 4. Product 5 runs after all panels, so that dq
// is loaded and stored once per chunk.
#pragma once

#include "kernels/backward/backward_kernel.h"
#include "kernels/simd/tiles.h"

namespace tessera::kernels {
namespace {

template <class V, class Words>
class BackwardTiles : Backward<V, Words> {
  using Base = Backward<V, Words>;
  using Base::block_, Base::panels_, Base::k_dim_, Base::v_dim_, Base::ldq_,
      Base::ldo_, Base::ldk_;
  using Base::kLanes, Base::kPack, Base::kPanel, Base::kPanels;
  using Base::q_pairs_, Base::o_pairs_, Base::p_, Base::ds_pairs_;
  using typename Base::Range;
  static constexpr int64_t kStep = Words::kLineStep;
  // Row stride of the transposed pairs.
  static constexpr int64_t kLdt = kBackwardRows / kPack + 16;
  // Strides of ds between rows, and between panels.
  static constexpr int64_t kDsRow = kPanel / kPack;
  static constexpr int64_t kDsPanel = kBackwardRows * kDsRow;

 public:
  explicit BackwardTiles(const BackwardBlock& block) : Base(block) {
    qt_ = Base::rest_;
    ot_ = qt_ + k_dim_ * kLdt;
  }

  void add(const BackwardChunk& chunk) {
    Range ranges[kPanels][2];
    const Stretch rows = Base::read_ranges(chunk, ranges);
    if (rows.empty()) return;
    const bool careful = !chunk.finite && chunk.layers != 0;
    Base::stage(chunk, rows);
    if (!careful) transpose(rows);
    for (int64_t i = 0; i < panels_; ++i) {
      const Range(&r)[2] = ranges[i];
      float* const ds = Base::ds_ + i * kDsPanel;
      const Stretch all = rows_of(r);
      if (all.empty()) {
        clear_ds(ds, rows);
        continue;
      }
      if (careful) Base::stage(chunk, rows);
      scores(Base::q_, ldq_, Base::k_words_,
             Base::kt_ + i * kPanel * Base::k_words_, all, Base::s_);
      scores(Base::o_, ldo_, Base::v_words_,
             Base::vt_ + i * kPanel * Base::v_words_, all, Base::g_);
      Base::find_gradients(chunk, i, r, ds);
      for (int j = 0; j < 2; ++j) clear_around(r[j], j, all, ds);
      clear_ds(ds, {rows.begin, all.begin});
      clear_ds(ds, {all.end, rows.end});
      if (careful) {
        Base::clear_odd_rows(chunk);
        transpose(rows);
      }
      accumulate(ot_, p_, all, Base::dv_ + i * kPanel * v_dim_, v_dim_);
      accumulate(qt_, ds_pairs_, all, Base::dk_ + i * kPanel * k_dim_, k_dim_);
      if (careful) Base::add_odd_rows(chunk, i, ds_pairs_);
    }
    add_dq(chunk, rows);
    if (*Base::odd_keys_ != 0) Base::add_odd_keys(chunk);
  }

 private:
  // The union of the rows of both vectors, rounded to whole steps.
  static Stretch rows_of(const Range (&r)[2]) {
    Stretch all{kBackwardRows, 0};
    for (const Range& range : r) {
      if (range.empty()) continue;
      if (range.begin < all.begin) all.begin = range.begin;
      if (range.end > all.end) all.end = range.end;
    }
    if (all.empty()) return {};
    return {all.begin / kStep * kStep, in_steps(all.end, kStep)};
  }

  void transpose(Stretch rows) {
    const int64_t at = rows.begin / kPack, n = rows.end / kPack - at;
    transpose_words<V>(q_pairs_ + at * ldq_, ldq_, n, k_dim_, qt_ + at, kLdt);
    transpose_words<V>(o_pairs_ + at * ldo_, ldo_, n, v_dim_, ot_ + at, kLdt);
  }

  static void scores(const float* a, int64_t a_row, int64_t words,
                     const float* b, Stretch rows, float* to) {
    multiply_tiles<false>({a + rows.begin * a_row, a_row}, {b, kPanel},
                          to + rows.begin * kPanel, kPanel,
                          rows.end - rows.begin, words);
  }

  static void accumulate(const float* a, const float* b, Stretch rows,
                         float* to, int64_t dim) {
    const int64_t at = rows.begin / kPack;
    multiply_tiles<true>({a + at, kLdt}, {b + at * kPanel, kPanel}, to, kPanel,
                         dim, rows.end / kPack - at);
  }

  void add_dq(const BackwardChunk& chunk, Stretch rows) {
    const int64_t words = panels_ * kDsRow;
    const auto ds = [&](int64_t row) {
      return Lines{Base::ds_ + row * kDsRow, kDsRow, kDsPanel};
    };
    // Rows of dq past the chunk's end belong to other queries and must not be
    // written, so a last partial step goes through a buffer.
    const int64_t inside =
        rows.end <= chunk.rows ? rows.end : chunk.rows / kStep * kStep;
    for (int64_t d = 0; d < ldk_; d += kPanel) {
      const Lines k{Base::k_ + d, ldk_};
      if (inside > rows.begin) {
        multiply_tiles<true>(ds(rows.begin), k,
                             chunk.dq + rows.begin * ldk_ + d, ldk_,
                             inside - rows.begin, words);
      }
      if (inside == rows.end) continue;
      float last[kStep * kPanel];
      multiply_tiles<false>(ds(inside), k, last, kPanel, kStep, words);
      for (int64_t row = inside; row < chunk.rows; ++row) {
        for (int j = 0; j < kPanel; j += kLanes) {
          float* const to = chunk.dq + row * ldk_ + d + j;
          V::store(to, V::add(V::load(to),
                              V::load(last + (row - inside) * kPanel + j)));
        }
      }
    }
  }

  // Zeroes p and ds in the rows of `all` outside the vector's range: products
  // take whole steps and read these rows too.
  void clear_around(const Range& r, int j, Stretch all, float* ds) const {
    const auto clear = [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; row += 2) {
        V::store(p_ + row / 2 * kPanel + j * kLanes, V::zero());
        V::store(ds_pairs_ + row / 2 * kPanel + j * kLanes, V::zero());
        float* const to = ds + row * kDsRow + j * kLanes / kPack;
        Words::store_row(to, V::zero());
        Words::store_row(to + kDsRow, V::zero());
      }
    };
    if (r.empty()) {
      clear(all.begin, all.end);
    } else {
      clear(all.begin, r.begin);
      clear(in_steps(r.end, kPack), all.end);
    }
  }
  static void clear_ds(float* ds, Stretch rows) {
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      V::store(ds + row * kDsRow, V::zero());
    }
  }

  float *qt_, *ot_;
};

}  // namespace
}  // namespace tessera::kernels
