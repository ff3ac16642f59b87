// kernels/forward/forward_tiles.h: the forward kernel with AMX tile products.
//
// A panel's scores go from the tile registers to memory, where the softmax
// reads them. Tile products and softmax alternate: running the softmax between
// the steps of a product takes as long as running it afterwards, because vector
// multiplications wait for the port that tiles use.
#pragma once

#include "kernels/forward/forward_kernel.h"
#include "kernels/simd/tiles.h"

namespace tessera::kernels {
namespace {

template <class V, class Words>
class ForwardTiles : Forward<V, Words> {
  using Base = Forward<V, Words>;
  using Base::kLanes, Base::kPack, Base::kPanel;
  using Base::task_, Base::panels_, Base::k_words_, Base::v_dim_, Base::ldk_,
      Base::ldv_, Base::k_, Base::v_, Base::s_, Base::p_;
  using typename Base::F;
  using typename Base::Range;
  // Row stride of the transposed pairs of values.
  static constexpr int64_t kLdvt = kForwardKeys / kPack + 16;

 public:
  explicit ForwardTiles(const ForwardTask& task) : Base(task) {
    vt_ = Base::rest_;
  }

  void run() {
    Base::run_with([this](const KeyChunk& chunk) { add(chunk); });
  }

 private:
  // The part of a chunk that a panel attends to.
  struct Part {
    int64_t panel = -1;
    Range range[2];  // of each vector
    Stretch keys;    // union of both ranges, in whole steps
  };

  void add(const KeyChunk& chunk) {
    transpose_words<V>(v_, ldv_, in_steps(chunk.keys, Words::kLineStep) / kPack,
                       v_dim_, vt_, kLdvt);
    Part part;
    while (next(chunk, part)) {
      multiply_scores(part);
      soften(part, chunk);
      add_values(part);
      if (Base::careful_ && chunk.layers != 0) {
        Base::add_odd_values(part.panel, chunk);
      }
    }
  }

  // Advances to the next panel with a legal key in the chunk; false: there is
  // none.
  bool next(const KeyChunk& chunk, Part& part) {
    while (++part.panel < panels_) {
      Stretch all{chunk.keys, 0};
      for (int j = 0; j < 2; ++j) {
        Range& r = part.range[j];
        r = chunk.layers == 0 ? Range{0, chunk.keys, 0, chunk.keys}
                              : Base::range_of(part.panel, j, chunk);
        if (r.empty()) continue;
        if (r.begin < all.begin) all.begin = r.begin;
        if (r.end > all.end) all.end = r.end;
        *task_.pairs += (r.end - r.begin) * kLanes;
      }
      if (all.empty()) continue;
      part.keys = {all.begin / Words::kLineStep * Words::kLineStep,
                   in_steps(all.end, Words::kLineStep)};
      return true;
    }
    return false;
  }

  void multiply_scores(const Part& part) const {
    const int64_t begin = part.keys.begin;
    multiply_tiles<false>(
        {k_ + begin * ldk_, ldk_}, {Base::q_panel(part.panel), kPanel},
        s_ + begin * kPanel, kPanel, part.keys.end - begin, k_words_);
  }
  void add_values(const Part& part) const {
    const int64_t begin = part.keys.begin / kPack;
    multiply_tiles<true>({vt_ + begin, kLdvt}, {p_ + begin * kPanel, kPanel},
                         Base::o_panel(part.panel), kPanel, v_dim_,
                         part.keys.end / kPack - begin);
  }

  void soften(const Part& part, const KeyChunk& chunk) {
    F alpha[2] = {V::set(1), V::set(1)};
    for (int j = 0; j < 2; ++j) {
      const Range& r = part.range[j];
      if (!r.empty()) alpha[j] = Base::mask_vector(part.panel, j, r, chunk);
      clear_around(part, j);
    }
    shrink(Base::o_panel(part.panel), alpha);
  }

  // Zeroes p of the keys in part.keys outside the vector's range: products take
  // whole steps and read these keys too.
  void clear_around(const Part& part, int j) const {
    const Range& r = part.range[j];
    const auto clear = [&](int64_t begin, int64_t end) {
      for (int64_t w = begin; w < end; ++w) {
        V::store(p_ + w * kPanel + j * kLanes, V::zero());
      }
    };
    const int64_t begin = part.keys.begin / kPack, end = part.keys.end / kPack;
    if (r.empty()) {
      clear(begin, end);
    } else {
      clear(begin, r.begin / kPack);
      clear((r.end + kPack - 1) / kPack, end);
    }
  }

  void shrink(float* o, const F (&alpha)[2]) const {
    float lane[kPanel];
    V::store(lane, alpha[0]);
    V::store(lane + kLanes, alpha[1]);
    bool is_one = true;
    for (const float x : lane) is_one &= x == 1;
    if (is_one) return;
    for (int64_t d = 0; d < v_dim_; ++d, o += kPanel) {
      V::store(o, V::mul(V::load(o), alpha[0]));
      V::store(o + kLanes, V::mul(V::load(o + kLanes), alpha[1]));
    }
  }

  float* vt_;
};

}  // namespace
}  // namespace tessera::kernels
