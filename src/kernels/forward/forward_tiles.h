// kernels/forward/forward_tiles.h: the same kernel, its products made by tiles.
//
// Tiles multiply some 16 times as fast as they take to exponentiate, so softmax
// is what a chunk waits for. It runs while tiles multiply: panel n has its
// probabilities made between the steps of two products, the values of panel
// n - 1 and the scores of panel n + 1. So scores and probabilities of two
// panels are there at a time.
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
      Base::ldv_, Base::k_, Base::v_, Base::max_, Base::sum_;
  using typename Base::F;
  using typename Base::Range;
  // Between rows of values in pairs, transposed.
  static constexpr int64_t kLdvt = kForwardKeys / kPack + 16;

 public:
  explicit ForwardTiles(const ForwardTask& task) : Base(task) {
    s_[0] = Base::s_;
    p_[0] = Base::p_;
    s_[1] = Base::rest_;
    p_[1] = s_[1] + kForwardKeys * kPanel;
    vt_ = p_[1] + kForwardKeys / kPack * kPanel;
  }

  void run() {
    Base::run_with([this](const KeyChunk& chunk) { add(chunk); });
  }

 private:
  // What a panel has to do with a chunk.
  struct Part {
    int64_t panel = -1;
    Range range[2];  // of its vectors
    Stretch keys;    // of both, in whole steps
    float *s = nullptr, *p = nullptr;
    F old[2], largest[2];  // sums are relative to `old` until it is softened
    F by[2];               // s is to be multiplied with it
  };

  void add(const KeyChunk& chunk) {
    transpose_words<V>(v_, ldv_, in_steps(chunk.keys, Words::kLineStep) / kPack,
                       v_dim_, vt_, kLdvt);
    Part now;
    if (!next(chunk, now)) return;
    now.s = s_[0], now.p = p_[0];
    scores(now).finish();
    find_largest(now, chunk);
    TileProduct values_before;
    for (int slot = 1;; slot ^= 1) {
      Part following = now;
      const bool more = next(chunk, following);
      following.s = s_[slot], following.p = p_[slot];
      {
        TileProducts products(values_before,
                              more ? scores(following) : TileProduct(),
                              ticks(now));
        soften(now, products);
      }
      values_before = values(now);
      if (Base::careful_ && chunk.layers != 0) {
        values_before.finish();
        Base::add_odd_values(now.panel, chunk, now.p);
      }
      if (!more) break;
      find_largest(following, chunk);
      now = following;
    }
    values_before.finish();
  }

  // Goes on to the next panel that has a legal key in the chunk, if any.
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

  TileProduct scores(const Part& part) const {
    const int64_t begin = part.keys.begin;
    return {{k_ + begin * ldk_, ldk_},
            {Base::q_panel(part.panel), kPanel},
            part.s + begin * kPanel,
            kPanel,
            part.keys.end - begin,
            k_words_,
            false};
  }
  TileProduct values(const Part& part) const {
    const int64_t begin = part.keys.begin / kPack;
    return {{vt_ + begin, kLdvt},
            {part.p + begin * kPanel, kPanel},
            Base::o_panel(part.panel),
            kPanel,
            v_dim_,
            part.keys.end / kPack - begin,
            true};
  }

  void find_largest(Part& part, const KeyChunk& chunk) {
    const F factor = Base::factor();
    for (int j = 0; j < 2; ++j) {
      const Range& r = part.range[j];
      if (r.empty()) continue;
      part.old[j] = V::load(max_ + part.panel * kPanel + j * kLanes);
      float* const s = part.s + j * kLanes;
      if (chunk.layers == 0 && task_.softcap <= 0) {
        F top[2] = {part.old[j], part.old[j]};
        int64_t k = 0;
        for (; k + 2 <= chunk.keys; k += 2) {
          for (int x = 0; x < 2; ++x) {
            const F score = V::mul(V::load(s + (k + x) * kPanel), factor);
            top[x] = V::max(top[x], score);
          }
        }
        if (k < chunk.keys) {
          top[0] = V::max(top[0], V::mul(V::load(s + k * kPanel), factor));
        }
        part.largest[j] = V::max(top[0], top[1]);
        part.by[j] = factor;
      } else {
        for (int64_t k = r.begin; k < r.end; ++k) {
          V::store(s + k * kPanel, V::mul(V::load(s + k * kPanel), factor));
        }
        part.largest[j] =
            Base::mask(part.panel, j, part.s, r, chunk, part.old[j]);
        part.by[j] = V::set(1);
      }
    }
  }

  // How often soften() asks for a step of the products.
  static int64_t ticks(const Part& part) {
    int64_t pairs = 0;
    for (const Range& r : part.range) {
      if (!r.empty()) pairs += (r.end - r.begin + 1) / 2;
    }
    return pairs;
  }

  // Turns scores into probabilities, and makes older sums relative to the new
  // largest score.
  void soften(const Part& part, TileProducts& products) {
    F alpha[2];
    for (int j = 0; j < 2; ++j) {
      alpha[j] =
          part.range[j].empty() ? V::set(1) : probabilities(part, j, products);
      clear_rest(part, j);
    }
    shrink(Base::o_panel(part.panel), alpha);
  }

  F probabilities(const Part& part, int j, TileProducts& products) {
    const int64_t begin = part.range[j].begin, end = part.range[j].end;
    const F largest = part.largest[j], by = part.by[j];
    V::store(max_ + part.panel * kPanel + j * kLanes, largest);
    // Where no key has been legal so far, 0 keeps -inf from meeting itself.
    const F base = V::select(V::equal(largest, V::set(-__builtin_inff())),
                             V::zero(), largest);
    if (task_.entropy != nullptr) {
      Base::add_spread(part.panel, j, part.s, by, begin, end, part.old[j],
                       base);
    }
    const F alpha = exp2<V>(V::sub(part.old[j], base));
    // Rounded before `base` is taken away, as the largest one was: no exponent
    // is above 0.
    const auto exponent = [&](const float* s) {
      return V::sub(V::mul(V::load(s), by), base);
    };
    F sum[2] = {V::zero(), V::zero()};
    for (int64_t k = begin; k < end; k += 2) {
      const float* const s = part.s + k * kPanel + j * kLanes;
      const F even = exp2<V>(exponent(s));
      const F odd = k + 1 < end ? exp2<V>(exponent(s + kPanel)) : V::zero();
      V::store(part.p + k / 2 * kPanel + j * kLanes, Words::pair(even, odd));
      sum[0] = V::add(sum[0], even);
      sum[1] = V::add(sum[1], odd);
      products.tick();
    }
    float* const l = sum_ + part.panel * kPanel + j * kLanes;
    V::store(l, V::fma(V::load(l), alpha, V::add(sum[0], sum[1])));
    return alpha;
  }

  // Steps also meet keys outside of a vector's range.
  static void clear_rest(const Part& part, int j) {
    const Range& r = part.range[j];
    const auto clear = [&](int64_t begin, int64_t end) {
      for (int64_t w = begin; w < end; ++w) {
        V::store(part.p + w * kPanel + j * kLanes, V::zero());
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

  float *s_[2], *p_[2], *vt_;
};

}  // namespace
}  // namespace tessera::kernels
