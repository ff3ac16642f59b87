// kernels/forward/forward_kernel.h: the forward kernel, for any vector type.
//
// One block of queries stays in scratch while keys are processed in chunks.
// With s_kq the score of key k and query q in units of log2(e), m_q the largest
// score so far and l_q, o_q the sums relative to it, each chunk computes
//
//   s_kq = scale log2(e) (k . q), or capped           product 1
//   m'_q = max(m_q, max_k s_kq)
//   p_kq = 2^(s_kq - m'_q), 0 where k is illegal for q
//   a_q  = 2^(m_q - m'_q)
//   l_q  = a_q l_q + sum_k p_kq
//   o_dq = a_q o_dq + sum_k v_kd p_kq                 product 2
//
// and at the end out_qd = o_dq / l_q, lse_q = (m_q + log2 l_q) / log2(e).
//
// If the entropy is requested, each chunk first computes
//
//   t_q  = a_q (t_q + l_q (m_q - m'_q)) + sum_k p_kq (s_kq - m'_q)
//
// and entropy_q = (log2 l_q - t_q / l_q) / log2(e). No term of t is above 0 and
// l is at least 1, so nothing cancels. Where m lags (kRaw), s - m' may be up to
// 8; a negative entropy is then rounding error and becomes 0.
//
// Scores are held transposed: keys down the rows, queries along the lanes. So
// the maximum and the sum over keys are plain vertical operations, each lane
// has its own mask bounds, and both products read K and V one word at a time in
// memory order (kernels/simd/product.h): only Q is transposed, once per task.
//
// Two vectors of queries form a panel. Its q, o and scores stay in L1 while a
// chunk is processed; the chunk stays in L2, where up to kForwardRows / kPanel
// panels read it. A register tile of kRows x 2 vectors keeps 2 kRows chains of
// FMAs in flight.
//
// Cost of one vector of scores on a machine with one FMA per cycle: head_dim +
// v_head_dim cycles for the products (half with bf16 pairs) and about 12 for
// the softmax. Keys that no query of a vector attends to are skipped in both.
#pragma once

#include "kernels/forward/forward.h"
#include "kernels/simd/math.h"
#include "kernels/simd/product.h"
#include "kernels/simd/sink.h"
#include "kernels/simd/stage.h"

namespace tessera::kernels {
namespace {

template <class V, class Words>
class Forward {
 protected:
  using F = typename V::F;
  using I = typename V::I;
  static constexpr int kLanes = V::kLanes;
  static constexpr int kPanel = 2 * kLanes;
  static constexpr int kPack = Words::kPack;
  // True: products store unscaled scores. False: scores() has scaled them.
  static constexpr bool kRaw = Words::kLineStep > 1;

 public:
  explicit Forward(const ForwardTask& task) : task_(task) {
    panels_ = (task_.rows + kPanel - 1) / kPanel;
    k_words_ = in_steps(task_.head_dim / kPack, Words::kWordStep);
    v_dim_ = in_steps(task_.v_head_dim, Words::kLineStep);
    ldk_ = k_words_ + 16;  // not a power of two: spreads rows over cache sets
    ldv_ = v_dim_ + 16;
    float* at = task_.scratch;
    const auto take = [&at](int64_t n) {
      float* const begin = at;
      at += (n + 15) / 16 * 16;
      return begin;
    };
    q_ = take(kForwardRows * k_words_);
    o_ = take(kForwardRows * v_dim_);
    k_ = take(kForwardKeys * ldk_);
    v_ = take(kForwardKeys / kPack * ldv_);
    s_ = take(kForwardKeys * kPanel);
    p_ = kPack == 1 ? s_ : take(kForwardKeys / kPack * kPanel);
    max_ = take(kForwardRows);
    sum_ = take(kForwardRows);
    inverse_ = take(kPanel);
    lse_ = take(kPanel);
    spread_ = take(kForwardRows);
    entropy_ = take(kPanel);
    rest_ = at;
  }

  void run() {
    run_with([this](const KeyChunk& chunk) {
      for (int64_t i = 0; i < panels_; ++i) {
        if (chunk.layers == 0) {
          full_chunk(i, chunk.keys);
        } else {
          masked_chunk(i, chunk);
        }
      }
    });
  }

 protected:
  // Calls add(chunk) for each staged chunk. If masked chunks gave a non-finite
  // sum, starts over with careful_ set.
  template <class Add>
  void run_with(Add&& add) {
    const int64_t before = *task_.pairs;
    bool masked = false;
    for (int64_t c = 0; c < task_.chunk_count; ++c) {
      masked |= task_.chunks[c].layers != 0;
    }
    clear_rest();
    add_chunks(add);
    if (masked && !all_finite<V>(o_, panels_ * kPanel * v_dim_)) {
      *task_.pairs = before;
      careful_ = true;
      add_chunks(add);
    }
    for (int64_t i = 0; i < panels_; ++i) end_panel(i);
  }

  // Keys [begin, end) of a chunk that some lane of a vector attends to; all
  // lanes attend to [full_begin, full_end).
  struct Range {
    int64_t begin = 0, end = 0, full_begin = 0, full_end = 0;
    bool empty() const { return begin >= end; }
  };

  template <class Add>
  void add_chunks(Add&& add) {
    for (int64_t i = 0; i < panels_; ++i) begin_panel(i);
    for (int64_t c = 0; c < task_.chunk_count; ++c) {
      if (task_.stopped != nullptr && task_.stopped(task_.stop)) return;
      const KeyChunk& chunk = task_.chunks[c];
      stage(chunk);
      if (careful_ && chunk.layers != 0) clear_odd_values(chunk);
      add(chunk);
    }
  }

  float* q_panel(int64_t i) const { return q_ + i * kPanel * k_words_; }
  float* o_panel(int64_t i) const { return o_ + i * kPanel * v_dim_; }

  void begin_panel(int64_t i) {
    const int64_t left = task_.rows - i * kPanel;
    pack_lanes<V, Words>(
        row_at(task_.q, task_.dtype, i * kPanel * task_.q_stride), task_.dtype,
        task_.q_stride, left < kPanel ? left : kPanel, nullptr, task_.head_dim,
        kPanel, q_panel(i));
    float* const o = o_panel(i);
    for (int64_t d = 0; d < kPanel * v_dim_; d += kLanes) {
      V::store(o + d, V::zero());
    }
    for (int j = 0; j < kPanel; j += kLanes) {
      V::store(max_ + i * kPanel + j, V::set(-__builtin_inff()));
      V::store(sum_ + i * kPanel + j, V::zero());
      if (task_.entropy != nullptr) {
        V::store(spread_ + i * kPanel + j, V::zero());
      }
    }
  }

  // Zeroes the padding that products read beyond the staged data: stale bits
  // there could be NaN, and 0 * NaN is NaN.
  void clear_rest() {
    const auto clear = [](float* to, int64_t n) {
      __builtin_memset(to, 0, static_cast<size_t>(n) * 4);
    };
    if (k_words_ != task_.head_dim / kPack) {
      clear(q_, panels_ * kPanel * k_words_);
      clear(k_, kForwardKeys * ldk_);
    }
    if (v_dim_ != task_.v_head_dim) clear(v_, kForwardKeys / kPack * ldv_);
  }

  void stage(const KeyChunk& chunk) {
    const int64_t keys = in_steps(chunk.keys, Words::kLineStep);
    const auto row = [&](const void* data, int64_t stride, int64_t k) {
      return k < chunk.keys && (chunk.live == nullptr || chunk.live[k] != 0)
                 ? row_at(data, task_.dtype, (chunk.begin + k) * stride)
                 : nullptr;
    };
    for (int64_t k = 0; k < keys; ++k) {
      stage_live<V, Words>(row(task_.k, task_.k_stride, k), task_.dtype,
                           task_.head_dim, k_ + k * ldk_);
    }
    for (int64_t k = 0; k < keys; k += kPack) {
      const void* v = row(task_.v, task_.v_stride, k);
      float* const to = v_ + k / kPack * ldv_;
      if constexpr (kPack == 2) {
        Words::stage_pair(v, row(task_.v, task_.v_stride, k + 1),
                          task_.v_head_dim, to);
      } else {
        stage_live<V, Words>(v, task_.dtype, task_.v_head_dim, to);
      }
    }
  }

  // Scores of `keys` of the chunk against vectors [kFrom, kTo) of the panel:
  // products times `factor`. `largest` becomes the running maximum.
  template <int kFrom, int kTo>
  void scores(const float* q, Stretch keys, F factor, F (&largest)[2]) {
    F top[2] = {largest[0], largest[1]};
    each_tile<V>(
        keys.begin,
        keys.end, [&]<int kM>(int64_t m) __attribute__((always_inline)) {
          F acc[kM][2];
          for (auto& row : acc) row[0] = row[1] = V::zero();
          multiply<V, Words, Lies::by_rows, kFrom, kTo>(
              acc, k_ + m * ldk_, ldk_, q, kPanel, k_words_);
          for (int r = 0; r < kM; ++r) {
            for (int j = kFrom; j < kTo; ++j) {
              const F s = V::mul(acc[r][j], factor);
              V::store(s_ + (m + r) * kPanel + j * kLanes, s);
              top[j] = V::max(top[j], s);
            }
          }
        });
    largest[0] = top[0];
    largest[1] = top[1];
  }

  // A score is a product times factor(), passed through cap() if there is a
  // softcap.
  F factor() const {
    return V::set(task_.softcap > 0 ? 2 * task_.scale * kLog2e / task_.softcap
                                    : task_.scale * kLog2e);
  }
  F cap(F y) const {
    return V::mul(V::set(task_.softcap * kLog2e), Tanh<V>(y).value);
  }

  void full_chunk(int64_t i, int64_t keys) {
    F largest[2], old[2], alpha[2];
    for (int j = 0; j < 2; ++j) {
      largest[j] = old[j] = V::load(max_ + i * kPanel + j * kLanes);
    }
    if (task_.softcap > 0) {
      F ignored[2] = {old[0], old[1]};
      scores<0, 2>(q_panel(i), {0, keys}, factor(), ignored);
      for (float* s = s_; s < s_ + keys * kPanel; s += kPanel) {
        for (int j = 0; j < 2; ++j) {
          const F capped = cap(V::load(s + j * kLanes));
          V::store(s + j * kLanes, capped);
          largest[j] = V::max(largest[j], capped);
        }
      }
    } else {
      scores<0, 2>(q_panel(i), {0, keys}, factor(), largest);
    }
    for (int j = 0; j < 2; ++j) {
      alpha[j] = probabilities(i, j, 0, keys, old[j], largest[j]);
    }
    const Range all{0, keys, 0, keys};
    *task_.pairs += keys * kPanel;
    accumulate(o_panel(i), alpha, all, all);
  }

  // Turns the scores of one vector into probabilities. Returns the factor that
  // rescales older sums.
  F probabilities(int64_t i, int j, int64_t begin, int64_t end, F old,
                  F largest) {
    V::store(max_ + i * kPanel + j * kLanes, largest);
    // If no key is legal so far, a base of 0 avoids -inf - -inf, which is NaN.
    const F base = V::select(V::equal(largest, V::set(-__builtin_inff())),
                             V::zero(), largest);
    if (task_.entropy != nullptr) add_spread(i, j, begin, end, old, base);
    const F alpha = exp2<V>(V::sub(old, base));
    F sum = V::zero();
    if constexpr (kPack == 1) {
      for (int64_t k = begin; k < end; ++k) {
        float* const s = s_ + k * kPanel + j * kLanes;
        const F p = exp2<V>(V::sub(V::load(s), base));
        V::store(s, p);
        sum = V::add(sum, p);
      }
    } else {
      for (int64_t k = begin; k < end; k += 2) {
        const float* const s = s_ + k * kPanel + j * kLanes;
        const F even = exp2<V>(V::sub(V::load(s), base));
        const F odd = k + 1 < end ? exp2<V>(V::sub(V::load(s + kPanel), base))
                                  : V::zero();
        V::store(p_ + k / 2 * kPanel + j * kLanes, Words::pair(even, odd));
        sum = V::add(sum, V::add(even, odd));
      }
    }
    float* const l = sum_ + i * kPanel + j * kLanes;
    V::store(l, V::fma(V::load(l), alpha, sum));
    return alpha;
  }

  // p * s, or its limit 0 where p is 0 and s is -inf.
  static F weighted(F p, F s) {
    return V::select(V::equal(p, V::zero()), V::zero(), V::mul(p, s));
  }

  // Updates t of one vector, before its scores become probabilities. Out of
  // line, so that calls without an entropy keep their registers.
  [[gnu::noinline]] void add_spread(int64_t i, int j, int64_t begin,
                                    int64_t end, F old, F base) {
    const F moved = V::sub(old, base);
    float* const t = spread_ + i * kPanel + j * kLanes;
    const F l = V::load(sum_ + i * kPanel + j * kLanes);
    const F before = V::select(V::equal(l, V::zero()), V::zero(),
                               V::fma(l, moved, V::load(t)));
    F sum = V::zero();
    for (int64_t k = begin; k < end; ++k) {
      const F s = V::sub(V::load(s_ + k * kPanel + j * kLanes), base);
      sum = V::add(sum, weighted(exp2<V>(s), s));
    }
    V::store(t, V::add(weighted(exp2<V>(moved), before), sum));
  }

  void masked_chunk(int64_t i, const KeyChunk& chunk) {
    const Range a = range_of(i, 0, chunk), b = range_of(i, 1, chunk);
    if (a.empty() && b.empty()) return;
    F alpha[2] = {V::set(1), V::set(1)}, ignored[2] = {V::zero(), V::zero()};
    const float* const q = q_panel(i);
    each_part({a.begin, a.end}, {b.begin, b.end},
              [&]<int kFrom, int kTo>(Stretch keys) {
                if (keys.begin < keys.end) {
                  scores<kFrom, kTo>(q, keys, factor(), ignored);
                }
              });
    if (!a.empty()) alpha[0] = mask_vector(i, 0, a, chunk);
    if (!b.empty()) alpha[1] = mask_vector(i, 1, b, chunk);
    *task_.pairs += (a.end - a.begin + b.end - b.begin) * kLanes;
    accumulate(o_panel(i), alpha, a, b);
    if (careful_) add_odd_values(i, chunk);
  }

  // A non-finite value must reach only the queries that may see its key, but
  // product 2 would spread it, since 0 * inf is NaN. If a sum is not finite,
  // the block is computed again without such values in product 2, and they are
  // added pair by pair. All other sums stay the same to the bit.
  void clear_odd_values(const KeyChunk& chunk) {
    each_odd_value(chunk, [&](int64_t k, int64_t d, float) {
      clear_number<Words>(v_, ldv_, k, d);
    });
  }
  void add_odd_values(int64_t i, const KeyChunk& chunk) {
    each_odd_value(chunk, [&](int64_t k, int64_t d, float v) {
      for (int64_t lane = 0; lane < kPanel; ++lane) {
        if (!is_legal(chunk, kForwardRows, i * kPanel + lane, k)) continue;
        o_panel(i)[d * kPanel + lane] +=
            lane_at<Words>(p_, kPanel, k, lane) * v;
      }
    });
  }
  template <class Visit>
  void each_odd_value(const KeyChunk& chunk, Visit&& visit) const {
    each_odd_number<V>(
        row_at(task_.v, task_.dtype, chunk.begin * task_.v_stride), task_.dtype,
        task_.v_stride, chunk.keys, chunk.live, task_.v_head_dim, visit);
  }

  Range range_of(int64_t i, int j, const KeyChunk& chunk) const {
    Range range{chunk.keys, 0, 0, chunk.layers == 1 ? chunk.keys : 0};
    for (int32_t layer = 0; layer < chunk.layers; ++layer) {
      const int64_t at = layer * kForwardRows + i * kPanel + j * kLanes;
      for (int r = 0; r < kLanes; ++r) {
        const int64_t first = chunk.first[at + r], last = chunk.last[at + r];
        if (first < last) {
          if (first < range.begin) range.begin = first;
          if (last > range.end) range.end = last;
        }
        if (first > range.full_begin) range.full_begin = first;
        if (last < range.full_end) range.full_end = last;
      }
    }
    if (range.empty()) return {};
    if (kPack == 2) {  // pairs begin at even keys
      range.begin &= ~int64_t{1};
    }
    if (range.full_begin >= range.full_end) {
      range.full_begin = range.full_end = range.end;
    }
    return range;
  }

  // Caps and masks the scores of one vector, then calls probabilities().
  F mask_vector(int64_t i, int j, const Range& range, const KeyChunk& chunk) {
    const F old = V::load(max_ + i * kPanel + j * kLanes);
    F largest[2] = {old, old};  // two chains, of even and odd keys
    const int64_t at = i * kPanel + j * kLanes;
    const F by = factor();
    const bool caps = task_.softcap > 0;
    const auto one = [&](int64_t k, bool test, F& top) {
      float* const p = s_ + k * kPanel + j * kLanes;
      F s = V::load(p);
      if constexpr (kRaw) s = V::mul(s, by);
      if (caps) s = cap(s);
      if (test) {
        auto legal = V::none();
        for (int32_t layer = 0; layer < chunk.layers; ++layer) {
          const I first = V::load_int(chunk.first + layer * kForwardRows + at);
          const I last = V::load_int(chunk.last + layer * kForwardRows + at);
          const I key = V::set_int(static_cast<int32_t>(k));
          legal = V::or_mask(legal, V::less_unsigned(V::sub_int(key, first),
                                                     V::sub_int(last, first)));
        }
        s = V::select(legal, s, V::set(-__builtin_inff()));
      }
      if (kRaw || test || caps) V::store(p, s);
      top = V::max(top, s);
    };
    const auto cap_and_mask = [&](int64_t begin, int64_t end, bool test) {
      int64_t k = begin;
      for (; k + 2 <= end; k += 2) {
        one(k, test, largest[0]);
        one(k + 1, test, largest[1]);
      }
      if (k < end) one(k, test, largest[0]);
    };
    cap_and_mask(range.begin, range.full_begin, true);
    cap_and_mask(range.full_begin, range.full_end, false);
    cap_and_mask(range.full_end, range.end, true);
    F top = V::max(largest[0], largest[1]);
    if constexpr (kRaw) {
      // Rescaling o is a separate pass over memory here, so the old maximum
      // stays until a score exceeds it by more than 8, a factor of 2^8.
      top = V::select(V::above(top, V::add(old, V::set(8))), top, old);
    }
    return probabilities(i, j, range.begin, range.end, old, top);
  }

  // Adds the chunk's values to o: vector 0 over the keys of `a`, vector 1 over
  // those of `b`.
  void accumulate(float* o, const F (&alpha)[2], const Range& a,
                  const Range& b) {
    const auto words = [](const Range& r) {
      return Stretch{r.begin / kPack, (r.end + kPack - 1) / kPack};
    };
    const Stretch a_words = words(a), b_words = words(b);
    each_tile<V>(
        0, task_.v_head_dim,
        [&]<int kM>(int64_t m) __attribute__((always_inline)) {
          F acc[kM][2];
          float* const c = o + m * kPanel;
          for (int r = 0; r < kM; ++r) {
            for (int j = 0; j < 2; ++j) {
              acc[r][j] =
                  V::mul(V::load(c + r * kPanel + j * kLanes), alpha[j]);
            }
          }
          each_part(
              a_words, b_words,
              [&]<int kFrom, int kTo>(Stretch s)
                  __attribute__((always_inline)) {
                    multiply<V, Words, Lies::by_columns, kFrom, kTo>(
                        acc, v_ + s.begin * ldv_ + m, ldv_,
                        p_ + s.begin * kPanel, kPanel, s.end - s.begin);
                  });
          for (int r = 0; r < kM; ++r) {
            for (int j = 0; j < 2; ++j) {
              V::store(c + r * kPanel + j * kLanes, acc[r][j]);
            }
          }
        });
  }

  void end_panel(int64_t i) {
    const int64_t first = i * kPanel;
    const int64_t left = task_.rows - first;
    const int64_t rows = left < kPanel ? left : kPanel;
    for (int j = 0; j < kPanel; j += kLanes) {
      F m = V::load(max_ + first + j), l = V::load(sum_ + first + j);
      F shrink = V::set(1), natural = V::zero();
      F t = V::zero();
      if (task_.entropy != nullptr) t = V::load(spread_ + first + j);
      if (task_.sink_logit != nullptr) {
        const WithSink<V> joined(m, *task_.sink_logit);
        shrink = exp2<V>(joined.keys);
        const F share = exp2<V>(joined.sink);
        if (task_.entropy != nullptr) {
          t = V::add(weighted(shrink, V::fma(l, joined.keys, t)),
                     weighted(share, joined.sink));
        }
        l = V::fma(l, shrink, share);
        m = joined.most;
        natural = joined.natural;
      }
      if (task_.entropy != nullptr) {
        const F bits = V::max(V::zero(), V::sub(log2<V>(l), V::div(t, l)));
        V::store(entropy_ + j, V::mul(bits, V::set(1 / kLog2e)));
      }
      V::store(inverse_ + j, V::div(shrink, l));
      const F lse = V::mul(V::add(m, log2<V>(l)), V::set(1 / kLog2e));
      V::store(lse_ + j, V::add(natural, lse));
    }
    for (int64_t r = 0; r < rows; ++r) {
      if (task_.live[first + r] == 0) {
        inverse_[r] = 0;
        entropy_[r] = 0;
        lse_[r] =
            task_.sink_logit != nullptr ? *task_.sink_logit : -__builtin_inff();
      } else if (__builtin_isinf(inverse_[r])) {
        // The query has legal keys, all with the score -inf: the softmax is
        // undefined.
        lse_[r] = __builtin_nanf("");
      }
    }
    if (task_.lse != nullptr) {
      __builtin_memcpy(task_.lse + first, lse_, static_cast<size_t>(rows) * 4);
    }
    if (task_.entropy != nullptr) {
      __builtin_memcpy(task_.entropy + first, entropy_,
                       static_cast<size_t>(rows) * 4);
    }
    unpack_lanes<V>(o_panel(i), kPanel, inverse_, rows, task_.v_head_dim,
                    row_at(task_.out, task_.dtype, first * task_.out_stride),
                    task_.dtype, task_.out_stride);
  }

  const ForwardTask& task_;
  bool careful_ = false;  // some values are not finite
  int64_t panels_, k_words_, v_dim_, ldk_, ldv_;
  float *q_, *o_, *k_, *v_, *s_, *p_, *max_, *sum_, *inverse_, *lse_, *spread_,
      *entropy_;
  float* rest_;  // first unused float of the scratch
};

}  // namespace
}  // namespace tessera::kernels
