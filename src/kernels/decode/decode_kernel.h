// kernels/decode/decode_kernel.h: the decode kernel, for any vector type.
//
// A few rows of queries stay in scratch while many keys are read once. With
// s_rk the score of row r and key k in units of log2(e), m_r the largest score
// so far and l_r, o_r the sums relative to it, each block of kBlock keys
// computes
//
//   s_rk = scale log2(e) (q_r . k_k), or capped       product 1
//   m'_r = max(m_r, max_k s_rk)
//   p_rk = 2^(s_rk - m'_r)
//   a_r  = 2^(m_r - m'_r)
//   l_r  = a_r l_r + sum_k p_rk
//   o_rd = a_r o_rd + sum_k p_rk v_kd                 product 2
//
// There are too few rows to fill vector lanes, so lanes run along the head
// dimension: K and V are read in place from the caller's arrays. Product 1
// computes a tile of R rows x kLanes / R keys, with one vector of partial sums
// per pair, and adds all of them up across lanes at once: the tile's scores are
// one vector, with the keys of row r in lanes [r kLanes / R, (r + 1) kLanes /
// R). The softmax runs on such vectors; product 2 takes their words one at a
// time. The size of a group of rows is a power of two.
//
// These calls are bound by memory: a key costs head_dim + v_head_dim numbers to
// load and rows / kLanes FMAs per number. So the next block is prefetched into
// L2 while the current one is computed.
#pragma once

#include "kernels/decode/decode.h"
#include "kernels/simd/math.h"
#include "kernels/simd/product.h"
#include "kernels/simd/sink.h"
#include "kernels/simd/stage.h"

namespace tessera::kernels {
namespace {

// How rows of a dtype are read as floats.
template <class V, Dtype kDtype>
struct FloatRows {
  using F = typename V::F;
  using Words = FloatWords<V>;
  static constexpr int kDims = V::kLanes;  // numbers of a vector of K or V

  // Numbers [i, i + kDims) of a row, or only `count` of them, padded with
  // zeros.
  static F load(const void* row, int64_t i) {
    return load_row<V>(row, kDtype, i);
  }
  static F load(const void* row, int64_t i, int64_t count) {
    return load_some<V>(row, kDtype, i, count);
  }
  // The same numbers of Words::kPack rows, as kPack vectors of words.
  static void load_values(const void* const* rows, int64_t i, F* v) {
    *v = load(*rows, i);
  }
  static void load_values(const void* const* rows, int64_t i, int64_t count,
                          F* v) {
    *v = load(*rows, i, count);
  }
};

template <class V, class Rows>
class Decode {
  using F = typename V::F;
  using Words = typename Rows::Words;
  static constexpr int kLanes = V::kLanes;
  static constexpr int kPack = Words::kPack;
  static constexpr int kDims = Rows::kDims;
  static constexpr int kBlock = 64;            // keys
  static constexpr int kMaxRows = kLanes / 2;  // in a group
  // Accumulators in registers: as many as a register tile of other kernels has.
  static constexpr int kSums = V::kRows >= 8 ? 16 : 8;

 public:
  explicit Decode(const DecodeTask& task) : task_(task) {
    width_ = task_.dtype == Dtype::f32 ? 4 : 2;
    ldq_ = decode_pitch(task_.head_dim);
    ldo_ = decode_pitch(task_.v_head_dim);
    q_ = task_.scratch;
    zeros_ = q_ + kDecodeRows * ldq_;
    s_ = zeros_ + (ldq_ > ldo_ ? ldq_ : ldo_);
    p_ = kPack == 1 ? s_ : s_ + kBlock * kMaxRows;
  }

  void run() {
    const int64_t padding = s_ - q_;
    __builtin_memset(q_, 0, static_cast<size_t>(padding) * sizeof(float));
    for (int64_t r = 0; r < task_.rows; ++r) {
      stage_row<V, Words>(task_.q[r], task_.dtype, task_.head_dim,
                          q_ + r * ldq_);
    }
    Block blocks[2];
    gather(blocks[0]);
    for (int i = 0; blocks[i].keys > 0; i = 1 - i) {
      gather(blocks[1 - i]);
      groups<kMaxRows>(0, blocks[i], blocks[1 - i]);
      *task_.pairs += task_.rows * blocks[i].keys;
    }
  }

 private:
  // Row pointers of K and V; those past the last key point to zeros.
  struct Block {
    int64_t keys = 0;
    const void* k[kBlock];
    const void* v[kBlock];
  };

  void gather(Block& block) {
    int64_t n = 0;
    while (n < kBlock && run_ < task_.run_count) {
      const KeyRun& run = task_.runs[run_];
      int64_t key = run.begin + used_;
      for (; key < run.end && n < kBlock; ++key, ++n) {
        block.k[n] = row_at(task_.k, task_.dtype, key * task_.k_stride);
        block.v[n] = row_at(task_.v, task_.dtype, key * task_.v_stride);
      }
      used_ = key - run.begin;
      if (key >= run.end) {
        ++run_;
        used_ = 0;
      }
    }
    block.keys = n;
    for (; n < kBlock; ++n) block.k[n] = block.v[n] = zeros_;
  }

  // Processes all rows from `row` on, in groups of at most R.
  template <int R>
  void groups(int64_t row, const Block& block, const Block& next) {
    for (; row + R <= task_.rows; row += R) {
      float alpha[kLanes];
      scores<R>(row, block, next);
      probabilities<R>(row, block, alpha);
      values < R, kSums / R /
                      kPack<8 / kPack ? kSums / R / kPack : 8 / kPack>(
                          0, row, block, next, alpha);
    }
    if constexpr (R > 1) groups<R / 2>(row, block, next);
  }

  // Prefetches the cache line of number `i` of a row. Prefetches are issued one
  // at a time between FMAs: a burst would stall the loads after it.
  void fetch(const void* row, int64_t i) const {
    constexpr int kSecondLevel = 2;
    __builtin_prefetch(static_cast<const char*>(row) + i * width_, 0,
                       kSecondLevel);
  }

  template <int R>
  void scores(int64_t row, const Block& block, const Block& next) {
    constexpr int kKeys = kLanes / R;
    const F factor =
        V::set(task_.softcap > 0 ? 2 * task_.scale * kLog2e / task_.softcap
                                 : task_.scale * kLog2e);
    const float* const q = q_ + row * ldq_;
    const int64_t whole = task_.head_dim / kDims * kDims;
    for (int64_t first = 0; first < block.keys; first += kKeys) {
      const void* const* const k = block.k + first;
      const void* const* const later = next.k + first;
      F acc[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) acc[i] = V::zero();
      const auto add = [&](int64_t i, auto load)
          __attribute__((always_inline)) {
        F part[R];
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) part[r] = V::load(q + r * ldq_ + i / kPack);
#pragma GCC unroll 16
        for (int j = 0; j < kKeys; ++j) {
          if (row == 0) fetch(later[j], i);
          const F key = load(k[j]);
#pragma GCC unroll 16
          for (int r = 0; r < R; ++r) {
            acc[r * kKeys + j] = Words::fma(key, part[r], acc[r * kKeys + j]);
          }
        }
      };
      for (int64_t i = 0; i < whole; i += kDims) {
        add(
            i, [i](const void* from) __attribute__((always_inline)) {
              return Rows::load(from, i);
            });
      }
      if (whole < task_.head_dim) {
        add(
            whole, [&](const void* from) __attribute__((always_inline)) {
              return Rows::load(from, whole, task_.head_dim - whole);
            });
      }
      V::store(s_ + first * R, V::mul(V::sums(acc), factor));
    }
  }

  // Turns scores into probabilities; `alpha` receives the factors that rescale
  // older sums, in the lanes of each row.
  template <int R>
  void probabilities(int64_t row, const Block& block, float (&alpha)[kLanes]) {
    constexpr int kKeys = kLanes / R;
    const F none = V::set(-__builtin_inff());
    const int64_t words = (block.keys + kKeys - 1) / kKeys * kLanes;
    if (task_.softcap > 0) {
      for (int64_t i = 0; i < words; i += kLanes) {
        V::store(s_ + i, V::mul(V::set(task_.softcap * kLog2e),
                                Tanh<V>(V::load(s_ + i)).value));
      }
    }
    // Lanes without a key get -inf, so that their probability is 0.
    for (int64_t k = block.keys; k % kKeys != 0; ++k) {
      for (int r = 0; r < R; ++r) {
        s_[k / kKeys * kLanes + r * kKeys + k % kKeys] = -__builtin_inff();
      }
    }
    F largest = none;
    for (int64_t i = 0; i < words; i += kLanes) {
      largest = V::max(largest, V::load(s_ + i));
    }
    float top[kLanes], old[kLanes];
    V::store(top, largest);
    for (int r = 0; r < R; ++r) {
      DecodeSums& sums = task_.sums[row + r];
      float most = sums.max;
      for (int j = 0; j < kKeys; ++j) {
        const float x = top[r * kKeys + j];
        most = x > most ? x : most;
      }
      for (int j = 0; j < kKeys; ++j) {
        old[r * kKeys + j] = sums.max;
        top[r * kKeys + j] = most;
      }
      sums.max = most;
    }
    // If every score so far is -inf, a base of 0 avoids -inf - -inf, which is
    // NaN.
    largest = V::load(top);
    const F base = V::select(V::equal(largest, none), V::zero(), largest);
    V::store(alpha, exp2<V>(V::sub(V::load(old), base)));
    F sum = V::zero();
    for (int64_t i = 0; i < words; i += kLanes) {
      const F p = exp2<V>(V::sub(V::load(s_ + i), base));
      sum = V::add(sum, p);
      if constexpr (kPack == 2) {
        Words::store_row(p_ + i / 2, p);
      } else {
        V::store(p_ + i, p);
      }
    }
    V::store(top, sum);
    for (int r = 0; r < R; ++r) {
      float more = 0;
      for (int j = 0; j < kKeys; ++j) more += top[r * kKeys + j];
      DecodeSums& sums = task_.sums[row + r];
      sums.sum = sums.sum * alpha[r * kKeys] + more;
    }
  }

  // Adds the block's values from number `i` of a row on, at most N vectors of V
  // at a time.
  template <int R, int N>
  void values(int64_t i, int64_t row, const Block& block, const Block& next,
              const float* alpha) {
    for (; i + N * kDims <= task_.v_head_dim; i += N * kDims) {
      add_values<R, N>(
          i, row, block, next, alpha,
          [i](const void* const* from, F* v) __attribute__((always_inline)) {
#pragma GCC unroll 16
            for (int n = 0; n < N; ++n) {
              Rows::load_values(from, i + n * kDims, v + n * kPack);
            }
          });
    }
    if constexpr (N > 1) {
      values<R, N / 2>(i, row, block, next, alpha);
    } else if (i < task_.v_head_dim) {
      const int64_t count = task_.v_head_dim - i;
      add_values<R, 1>(
          i, row, block, next, alpha,
          [=](const void* const* from, F* v) __attribute__((always_inline)) {
            Rows::load_values(from, i, count, v);
          });
    }
  }

  template <int R, int N, class Load>
  void add_values(int64_t i, int64_t row, const Block& block, const Block& next,
                  const float* alpha, Load load) {
    constexpr int kKeys = kLanes / R;
    constexpr int kVectors = N * kPack;
    F acc[R][kVectors];
    float* const out = task_.out + row * ldo_ + i;
    for (int r = 0; r < R; ++r) {
      const F shrink = V::set(alpha[r * kKeys]);
#pragma GCC unroll 16
      for (int n = 0; n < kVectors; ++n) {
        acc[r][n] = V::mul(V::load(out + r * ldo_ + n * kLanes), shrink);
      }
    }
    for (int64_t first = 0; first < block.keys; first += kKeys) {
      const float* const p = p_ + first * R / kPack;
      for (int j = 0; j < kKeys; j += kPack) {
        const int64_t key = first + j;
        if (row == 0) {
          for (int n = 0; n < kVectors; ++n) {
            fetch(next.v[key + n % kPack], i + n / kPack * kDims);
          }
        }
        F v[kVectors];
        load(block.v + key, v);
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
          const F x = V::set(p[(r * kKeys + j) / kPack]);
#pragma GCC unroll 16
          for (int n = 0; n < kVectors; ++n) {
            acc[r][n] = Words::fma(x, v[n], acc[r][n]);
          }
        }
      }
    }
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
      for (int n = 0; n < kVectors; ++n) {
        V::store(out + r * ldo_ + n * kLanes, acc[r][n]);
      }
    }
  }

  const DecodeTask& task_;
  int64_t run_ = 0, used_ = 0;  // the next key to gather
  int64_t width_, ldq_, ldo_;
  float *q_, *zeros_, *s_, *p_;
};

template <class V>
void decode_floats(const DecodeTask& task) {
  if (task.dtype == Dtype::f32) {
    Decode<V, FloatRows<V, Dtype::f32>>(task).run();
  } else if (task.dtype == Dtype::bf16) {
    Decode<V, FloatRows<V, Dtype::bf16>>(task).run();
  } else {
    Decode<V, FloatRows<V, Dtype::f16>>(task).run();
  }
}

template <class V>
float first_lane(typename V::F x) {
  float lanes[V::kLanes];
  V::store(lanes, x);
  return lanes[0];
}

template <class V>
void merge_parts(const DecodeMerge& t) {
  using F = typename V::F;
  constexpr int kLanes = V::kLanes;
  constexpr float kNone = -__builtin_inff();
  if (!t.live) {
    if (t.lse != nullptr) *t.lse = t.sink_logit ? *t.sink_logit : kNone;
    const int64_t width = t.dtype == Dtype::f32 ? 4 : 2;
    __builtin_memset(t.to, 0, static_cast<size_t>(t.v_head_dim * width));
    return;
  }
  float top = kNone;
  for (int64_t i = 0; i < t.parts; ++i) {
    const float max = t.sums[i * t.sums_stride].max;
    top = max > top ? max : top;
  }
  const float base = top == kNone ? 0 : top;
  float sum = 0;
  for (int64_t i = 0; i < t.parts; ++i) {
    DecodeSums& part = t.sums[i * t.sums_stride];
    part.max = first_lane<V>(
        exp2<V>(V::set(part.max - base)));  // the part's weight from here on
    sum += part.max * part.sum;
  }
  float shrink = 1, natural = 0;
  if (t.sink_logit != nullptr) {
    const WithSink<V> joined(V::set(top), *t.sink_logit);
    shrink = first_lane<V>(exp2<V>(joined.keys));
    sum = sum * shrink + first_lane<V>(exp2<V>(joined.sink));
    top = first_lane<V>(joined.most);
    natural = first_lane<V>(joined.natural);
  }
  const F inverse = V::set(shrink / sum);
  if (t.lse != nullptr) {
    const float log2_sum = first_lane<V>(log2<V>(V::set(sum)));
    // If every legal key has the score -inf, the softmax is undefined.
    *t.lse = sum > 0 ? natural + (top + log2_sum) * (1 / kLog2e)
                     : __builtin_nanf("");
  }
  for (int64_t d = 0; d < t.v_head_dim; d += kLanes) {
    F out = V::zero();
    for (int64_t i = 0; i < t.parts; ++i) {
      out = V::fma(V::set(t.sums[i * t.sums_stride].max),
                   V::load(t.out + i * t.out_stride + d), out);
    }
    out = V::mul(out, inverse);
    const int64_t left = t.v_head_dim - d;
    if (left >= kLanes) {
      store_row<V>(t.to, t.dtype, d, out);
    } else {
      store_some<V>(t.to, t.dtype, d, left, out);
    }
  }
}

}  // namespace
}  // namespace tessera::kernels
