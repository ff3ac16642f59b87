// kernels/backward/backward_kernel.h: the backward kernel, for any vector type.
//
// One block of keys stays in scratch while its queries are processed in chunks.
// One pass over the transposed worklist writes dk and dv once and accumulates
// dq, with five products per (query, key) pair. With the log-sum-exp of the
// forward pass and delta_q = dout_q . out_q - dlse_q, each chunk computes
//
//   s_qk  = scale log2(e) (q . k), or capped          product 1
//   p_qk  = 2^(s_qk - lse_q), 0 where k is illegal for q
//   g_qk  = dout_q . v_k                              product 2
//   ds_qk = p_qk (g_qk - delta_q), times the slope of the cap
//   dv_k += sum_q p_qk dout_q                         product 3
//   dk_k += sum_q ds_qk q_q                           product 4
//   dq_q += sum_k ds_qk k_k                           product 5
//
// At the end dk and dq are multiplied by scale.
//
// Keys run along the vector lanes. The block's arrays (K, V, and dk, dv until
// they are written) are packed that way; Q and dout are read word by word in
// memory order. Only product 5 differs: its lanes run along a row of dq, and it
// reads ds word by word.
//
// For each vector of keys, queries that attend to none of its keys are skipped.
// The remaining range is widened to multiples of kRows, so that the register
// tiles of product 5 find zeros in the extra rows.
//
// Cost of one vector of pairs on a machine with one FMA per cycle: 3 head_dim +
// 2 v_head_dim cycles for the products (half with bf16 pairs), about 18 cycles
// for the rest.
#pragma once

#include "kernels/backward/backward.h"
#include "kernels/simd/math.h"
#include "kernels/simd/product.h"
#include "kernels/simd/stage.h"

namespace tessera::kernels {
namespace {

template <class V, class Words>
class Backward {
 protected:
  using F = typename V::F;
  using I = typename V::I;
  static constexpr int kLanes = V::kLanes;
  static constexpr int kPanel = 2 * kLanes;
  static constexpr int kPanels = kBackwardKeys / kPanel;
  static constexpr int kPack = Words::kPack;
  static_assert(V::kRows % kPack == 0);

 public:
  explicit Backward(const BackwardBlock& block) : block_(block) {
    panels_ = (block_.keys + kPanel - 1) / kPanel;
    k_words_ = in_steps(block_.head_dim / kPack, Words::kWordStep);
    v_words_ = in_steps(block_.v_head_dim / kPack, Words::kWordStep);
    k_dim_ = in_steps(block_.head_dim, Words::kLineStep);
    v_dim_ = in_steps(block_.v_head_dim, Words::kLineStep);
    ldq_ = k_dim_ + 16;  // not a power of two: spreads rows over cache sets
    ldo_ = v_dim_ + 16;
    ldk_ = block_.dq_row;
    float* at = block_.scratch;
    const auto take = [&at](int64_t n) {
      float* const begin = at;
      at += (n + 15) / 16 * 16;
      return begin;
    };
    odd_keys_ = take(1);
    kt_ = take(kBackwardKeys * k_words_);
    vt_ = take(kBackwardKeys * v_words_);
    k_ = take(kBackwardKeys / kPack * ldk_);
    dk_ = take(kBackwardKeys * k_dim_);
    dv_ = take(kBackwardKeys * v_dim_);
    q_ = take(kBackwardRows * ldq_);
    o_ = take(kBackwardRows * ldo_);
    s_ = take(kBackwardRows * kPanel);
    g_ = take(kBackwardRows * kPanel);
    ds_ = take(kPanels * kBackwardRows * kPanel / kPack);
    if constexpr (kPack == 2) {
      q_pairs_ = take(kBackwardRows / 2 * ldq_);
      o_pairs_ = take(kBackwardRows / 2 * ldo_);
      p_ = take(kBackwardRows / 2 * kPanel);
      ds_pairs_ = take(kBackwardRows / 2 * kPanel);
    }
    rest_ = at;
  }

  void begin() {
    clear_rest();
    for (int64_t i = 0; i < panels_; ++i) {
      const int64_t left = block_.keys - i * kPanel;
      const int64_t keys = left < kPanel ? left : kPanel;
      const uint8_t* const live =
          block_.live == nullptr ? nullptr : block_.live + i * kPanel;
      pack_lanes<V, Words>(
          row_at(block_.k, block_.dtype, i * kPanel * block_.k_stride),
          block_.dtype, block_.k_stride, keys, live, block_.head_dim, kPanel,
          kt_ + i * kPanel * k_words_);
      pack_lanes<V, Words>(
          row_at(block_.v, block_.dtype, i * kPanel * block_.v_stride),
          block_.dtype, block_.v_stride, keys, live, block_.v_head_dim, kPanel,
          vt_ + i * kPanel * v_words_);
    }
    fill_zero(k_, panels_ * kPanel / kPack * ldk_);
    const auto row = [&](int64_t k) {
      return k < block_.keys && (block_.live == nullptr || block_.live[k] != 0)
                 ? row_at(block_.k, block_.dtype, k * block_.k_stride)
                 : nullptr;
    };
    for (int64_t k = 0; k < block_.keys; k += kPack) {
      float* const to = k_ + k / kPack * ldk_;
      if constexpr (kPack == 2) {
        Words::stage_pair(row(k), row(k + 1), block_.head_dim, to);
      } else {
        stage_live<V, Words>(row(k), block_.dtype, block_.head_dim, to);
      }
    }
    *odd_keys_ = 0;
    each_odd_number<V>(block_.k, block_.dtype, block_.k_stride, block_.keys,
                       block_.live, block_.head_dim,
                       [&](int64_t k, int64_t d, float) {
                         clear_number<Words>(k_, ldk_, k, d);
                         *odd_keys_ = 1;
                       });
    fill_zero(dk_, panels_ * kPanel * k_dim_);
    fill_zero(dv_, panels_ * kPanel * v_dim_);
  }

  void add(const BackwardChunk& chunk) {
    Range ranges[kPanels][2];
    const Stretch rows = read_ranges(chunk, ranges);
    stage(chunk, rows);
    for (int64_t i = 0; i < panels_; ++i) {
      const Range(&r)[2] = ranges[i];
      if (r[0].empty() && r[1].empty()) continue;
      const bool careful = !chunk.finite && chunk.layers != 0;
      if (careful) stage(chunk, rows);
      products(q_, ldq_, k_words_, kt_ + i * kPanel * k_words_, r, s_);
      products(o_, ldo_, v_words_, vt_ + i * kPanel * v_words_, r, g_);
      float* const ds = ds_ + i * kBackwardRows * kPanel / kPack;
      find_gradients(chunk, i, r, ds);
      if (careful) clear_odd_rows(chunk);
      const bool pairs = kPack == 2;
      accumulate(dv_ + i * kPanel * v_dim_, block_.v_head_dim,
                 pairs ? o_pairs_ : o_, ldo_, pairs ? p_ : s_, r);
      accumulate(dk_ + i * kPanel * k_dim_, block_.head_dim,
                 pairs ? q_pairs_ : q_, ldq_, pairs ? ds_pairs_ : ds, r);
      if (careful) add_odd_rows(chunk, i, pairs ? ds_pairs_ : ds);
    }
    add_dq(chunk, ranges);
    if (*odd_keys_ != 0) add_odd_keys(chunk);
  }

  void end() {
    float one[kPanel], scale[kPanel];
    for (int j = 0; j < kPanel; j += kLanes) {
      V::store(one + j, V::set(1));
      V::store(scale + j, V::set(block_.scale));
    }
    for (int64_t i = 0; i < panels_; ++i) {
      const int64_t left = block_.keys - i * kPanel;
      const int64_t keys = left < kPanel ? left : kPanel;
      unpack_lanes<V>(
          dk_ + i * kPanel * k_dim_, kPanel, scale, keys, block_.head_dim,
          row_at(block_.dk, block_.dtype, i * kPanel * block_.dk_stride),
          block_.dtype, block_.dk_stride);
      unpack_lanes<V>(
          dv_ + i * kPanel * v_dim_, kPanel, one, keys, block_.v_head_dim,
          row_at(block_.dv, block_.dtype, i * kPanel * block_.dv_stride),
          block_.dtype, block_.dv_stride);
    }
  }

 protected:
  // Queries [begin, end) of a chunk that attend to some key of a vector;
  // queries [full_begin, full_end) attend to all of its keys.
  struct Range {
    int64_t begin = 0, end = 0, full_begin = 0, full_end = 0;
    bool empty() const { return begin >= end; }
  };

  static void fill_zero(float* to, int64_t n) {
    for (int64_t i = 0; i < n; i += kLanes) V::store(to + i, V::zero());
  }

  // Zeroes the padding that products read beyond the staged data: stale bits
  // there could be NaN, and 0 * NaN is NaN.
  void clear_rest() {
    if (k_words_ != block_.head_dim / kPack) {
      fill_zero(kt_, panels_ * kPanel * k_words_);
      fill_zero(q_, kBackwardRows * ldq_);
    }
    if (v_words_ != block_.v_head_dim / kPack) {
      fill_zero(vt_, panels_ * kPanel * v_words_);
      fill_zero(o_, kBackwardRows * ldo_);
    }
    if (k_dim_ != block_.head_dim) {
      fill_zero(q_pairs_, kBackwardRows / kPack * ldq_);
    }
    if (v_dim_ != block_.v_head_dim) {
      fill_zero(o_pairs_, kBackwardRows / kPack * ldo_);
    }
  }

  // Finds the query range of each vector of keys. Returns the union of the
  // ranges, rounded to whole steps.
  Stretch read_ranges(const BackwardChunk& chunk, Range (&ranges)[kPanels][2]) {
    Stretch rows{chunk.rows, 0};
    for (int64_t x = 0; x < 2 * panels_; ++x) {
      Range& r = ranges[x / 2][x % 2];
      r = range_of(chunk, x / 2, static_cast<int>(x % 2));
      if (r.empty()) continue;
      *block_.pairs += (r.end - r.begin) * kLanes;
      if (r.begin < rows.begin) rows.begin = r.begin;
      if (r.end > rows.end) rows.end = r.end;
    }
    if (rows.empty()) return {};
    return {rows.begin / Words::kLineStep * Words::kLineStep,
            in_steps(rows.end, Words::kLineStep)};
  }

  // Copies `rows` of q and dout to scratch in the layout of the products.
  void stage(const BackwardChunk& chunk, Stretch rows) {
    stage(chunk, rows, chunk.q, chunk.q_stride, block_.head_dim, ldq_, q_,
          q_pairs_);
    stage(chunk, rows, chunk.dout, chunk.dout_stride, block_.v_head_dim, ldo_,
          o_, o_pairs_);
  }
  // Rows without a legal key are staged as zeros and never read.
  void stage(const BackwardChunk& chunk, Stretch rows, const void* data,
             int64_t stride, int64_t dim, int64_t ld, float* to, float* pairs) {
    const auto at = [&](int64_t r) {
      return r < chunk.rows && chunk.live[r] != 0
                 ? row_at(data, block_.dtype, r * stride)
                 : nullptr;
    };
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      stage_live<V, Words>(at(r), block_.dtype, dim, to + r * ld);
    }
    if constexpr (kPack == 2) {
      for (int64_t r = rows.begin; r < rows.end; r += 2) {
        Words::stage_pair(at(r), at(r + 1), dim, pairs + r / 2 * ld);
      }
    }
  }

  Range range_of(const BackwardChunk& chunk, int64_t i, int j) const {
    if (chunk.layers == 0) return {0, chunk.rows, 0, chunk.rows};
    const auto low = static_cast<int32_t>(i * kPanel + j * kLanes);
    const int32_t high = low + kLanes;
    Range range{chunk.rows, 0, 0, 0};
    for (int64_t r = 0; r < chunk.rows; ++r) {
      bool some = false, all = false;
      for (int32_t layer = 0; layer < chunk.layers; ++layer) {
        const int32_t first = chunk.first[layer * kBackwardRows + r];
        const int32_t last = chunk.last[layer * kBackwardRows + r];
        some |= first < last && first < high && last > low;
        all |= first <= low && last >= high;
      }
      if (some) {
        if (r < range.begin) range.begin = r;
        range.end = r + 1;
      }
      // The full range is the first run of rows that attend to all keys.
      if (all && range.full_end == range.full_begin) {
        range.full_begin = r;
        range.full_end = r + 1;
      } else if (all && range.full_end == r) {
        range.full_end = r + 1;
      }
    }
    if (range.empty()) return {};
    range.begin -= range.begin % V::kRows;
    range.end += (V::kRows - range.end % V::kRows) % V::kRows;
    if (range.end > chunk.rows) range.end = chunk.rows;
    if (range.full_begin == range.full_end) {
      range.full_begin = range.full_end = range.end;
    }
    return range;
  }

  // to = A times the packed panel B, over the rows in each vector's range.
  void products(const float* a, int64_t lda, int64_t words, const float* b,
                const Range (&r)[2], float* to) {
    each_part(
        {r[0].begin, r[0].end}, {r[1].begin, r[1].end},
        [&]<int kFrom, int kTo>(Stretch rows) {
          each_tile<V>(
              rows.begin,
              rows.end, [&]<int kM>(int64_t m) __attribute__((always_inline)) {
                F acc[kM][2];
                for (auto& row : acc) row[0] = row[1] = V::zero();
                multiply<V, Words, Lies::by_rows, kFrom, kTo>(
                    acc, a + m * lda, lda, b, kPanel, words);
                for (int x = 0; x < kM; ++x) {
                  for (int j = kFrom; j < kTo; ++j) {
                    V::store(to + (m + x) * kPanel + j * kLanes, acc[x][j]);
                  }
                }
              });
        });
  }

  // Computes p and ds from s and g, over the rows in each vector's range.
  void find_gradients(const BackwardChunk& chunk, int64_t i,
                      const Range (&r)[2], float* ds_rows) {
    for (int j = 0; j < 2; ++j) {
      if (block_.softcap > 0) {
        gradients<true>(chunk, i, j, r[j], ds_rows);
      } else {
        gradients<false>(chunk, i, j, r[j], ds_rows);
      }
    }
  }

  // find_gradients() for vector j of panel i.
  template <bool kCap>
  void gradients(const BackwardChunk& chunk, int64_t i, int j,
                 const Range& range, float* ds_rows) {
    int32_t lane[kLanes];
    for (int l = 0; l < kLanes; ++l) {
      lane[l] = static_cast<int32_t>(i * kPanel + j * kLanes + l);
    }
    const I keys = V::load_int(lane);
    const F factor = V::set(kCap ? 2 * block_.scale * kLog2e / block_.softcap
                                 : block_.scale * kLog2e);
    const F cap = V::set(block_.softcap * kLog2e);
    const auto one = [&](int64_t r, bool test, F& p, F& ds) {
      F s = V::mul(V::load(s_ + r * kPanel + j * kLanes), factor);
      F slope = V::zero();
      if constexpr (kCap) {
        const Tanh<V> tanh(s);
        s = V::mul(cap, tanh.value);
        slope = tanh.slope;
      }
      // Rounding may make the exponent positive; a probability is at most 1.
      p = exp2<V>(V::min(V::zero(), V::sub(s, V::set(chunk.lse[r]))));
      const F g = V::load(g_ + r * kPanel + j * kLanes);
      ds = V::mul(p, V::sub(g, V::set(chunk.delta[r])));
      if constexpr (kCap) ds = V::mul(ds, slope);
      if (test) {
        auto legal = V::none();
        for (int32_t layer = 0; layer < chunk.layers; ++layer) {
          const int32_t first = chunk.first[layer * kBackwardRows + r];
          const int32_t last = chunk.last[layer * kBackwardRows + r];
          legal = V::or_mask(
              legal, V::less_unsigned(V::sub_int(keys, V::set_int(first)),
                                      V::set_int(last - first)));
        }
        p = V::select(legal, p, V::zero());
        ds = V::select(legal, ds, V::zero());
      }
    };
    const auto rows = [&](int64_t begin, int64_t end, bool test) {
      if constexpr (kPack == 1) {
        for (int64_t r = begin; r < end; ++r) {
          F p, ds;
          one(r, test, p, ds);
          V::store(s_ + r * kPanel + j * kLanes, p);
          V::store(ds_rows + r * kPanel + j * kLanes, ds);
        }
      } else {
        for (int64_t r = begin; r < end; r += 2) {
          F p0, ds0, p1 = V::zero(), ds1 = V::zero();
          one(r, test, p0, ds0);
          if (r + 1 < chunk.rows) one(r + 1, test, p1, ds1);
          V::store(p_ + r / 2 * kPanel + j * kLanes, Words::pair(p0, p1));
          V::store(ds_pairs_ + r / 2 * kPanel + j * kLanes,
                   Words::pair(ds0, ds1));
          float* const to = ds_rows + r * kLanes + j * kLanes / 2;
          Words::store_row(to, ds0);
          Words::store_row(to + kLanes, ds1);
        }
      }
    };
    // Pairs of rows begin at even rows.
    int64_t full_begin = range.full_begin, full_end = range.full_end;
    if (kPack == 2) {
      full_begin += full_begin & 1;
      if (full_end < range.end) full_end &= ~int64_t{1};
      if (full_begin >= full_end) full_begin = full_end = range.end;
    }
    rows(range.begin, full_begin, true);
    rows(full_begin, full_end, false);
    rows(full_end, range.end, true);
  }

  // to += transposed A times B, over the rows in each vector's range.
  void accumulate(float* to, int64_t dim, const float* a, int64_t lda,
                  const float* b, const Range (&r)[2]) {
    const auto words = [](const Range& range) {
      return Stretch{range.begin / kPack, (range.end + kPack - 1) / kPack};
    };
    const Stretch first = words(r[0]), second = words(r[1]);
    each_tile<V>(
        0, dim, [&]<int kM>(int64_t m) __attribute__((always_inline)) {
          F acc[kM][2];
          float* const c = to + m * kPanel;
          for (int x = 0; x < kM; ++x) {
            for (int j = 0; j < 2; ++j) {
              acc[x][j] = V::load(c + x * kPanel + j * kLanes);
            }
          }
          each_part(
              first, second,
              [&]<int kFrom, int kTo>(Stretch rows)
                  __attribute__((always_inline)) {
                    multiply<V, Words, Lies::by_columns, kFrom, kTo>(
                        acc, a + rows.begin * lda + m, lda,
                        b + rows.begin * kPanel, kPanel, rows.end - rows.begin);
                  });
          for (int x = 0; x < kM; ++x) {
            for (int j = 0; j < 2; ++j) {
              V::store(c + x * kPanel + j * kLanes, acc[x][j]);
            }
          }
        });
  }

  // Product 5. A tile of rows sums over the vectors of keys whose range
  // includes one of its rows.
  void add_dq(const BackwardChunk& chunk, const Range (&ranges)[kPanels][2]) {
    constexpr int64_t kVectorWords = kLanes / kPack;
    each_tile<V>(
        0, chunk.rows, [&]<int kM>(int64_t m) __attribute__((always_inline)) {
          // If both vectors of a panel are needed, they form one run of words.
          int64_t begin[kPanels * 2], end[kPanels * 2];
          int runs = 0;
          for (int64_t x = 0; x < 2 * panels_; ++x) {
            const Range& r = ranges[x / 2][x % 2];
            if (r.begin >= m + kM || r.end <= m) continue;
            if (runs > 0 && x % 2 == 1 && end[runs - 1] == x * kVectorWords) {
              end[runs - 1] += kVectorWords;
            } else {
              begin[runs] = x * kVectorWords;
              end[runs++] = (x + 1) * kVectorWords;
            }
          }
          if (runs == 0) return;
          for (int64_t d = 0; d < ldk_; d += kPanel) {
            F acc[kM][2];
            float* const c = chunk.dq + m * ldk_ + d;
            for (int x = 0; x < kM; ++x) {
              for (int j = 0; j < 2; ++j) {
                acc[x][j] = V::load(c + x * ldk_ + j * kLanes);
              }
            }
            for (int x = 0; x < runs; ++x) {
              const int64_t panel = begin[x] / (2 * kVectorWords);
              const float* const ds =
                  ds_ + (panel * kBackwardRows + m) * 2 * kVectorWords +
                  begin[x] % (2 * kVectorWords);
              multiply<V, Words, Lies::by_rows, 0, 2>(acc, ds, 2 * kVectorWords,
                                                      k_ + begin[x] * ldk_ + d,
                                                      ldk_, end[x] - begin[x]);
            }
            for (int x = 0; x < kM; ++x) {
              for (int j = 0; j < 2; ++j) {
                V::store(c + x * ldk_ + j * kLanes, acc[x][j]);
              }
            }
          }
        });
  }

  // A non-finite number must reach only the rows of its legal pairs, but
  // products 3, 4 and 5 would spread it, since 0 * inf is NaN. The products see
  // 0 in its place, and its contributions are added pair by pair.
  void clear_odd_rows(const BackwardChunk& chunk) {
    each_odd_number<V>(
        chunk.q, block_.dtype, chunk.q_stride, chunk.rows, chunk.live,
        block_.head_dim, [&](int64_t r, int64_t d, float) {
          clear_number<Words>(kPack == 2 ? q_pairs_ : q_, ldq_, r, d);
        });
    each_odd_number<V>(
        chunk.dout, block_.dtype, chunk.dout_stride, chunk.rows, chunk.live,
        block_.v_head_dim, [&](int64_t r, int64_t d, float) {
          clear_number<Words>(kPack == 2 ? o_pairs_ : o_, ldo_, r, d);
        });
  }
  void add_odd_rows(const BackwardChunk& chunk, int64_t i, const float* ds) {
    const auto add = [&](float* to, const float* by) {
      return [&chunk, i, to, by](int64_t r, int64_t d, float x) {
        for (int64_t lane = 0; lane < kPanel; ++lane) {
          if (!is_legal(chunk, kBackwardRows, r, i * kPanel + lane)) continue;
          to[d * kPanel + lane] += lane_at<Words>(by, kPanel, r, lane) * x;
        }
      };
    };
    each_odd_number<V>(chunk.q, block_.dtype, chunk.q_stride, chunk.rows,
                       chunk.live, block_.head_dim,
                       add(dk_ + i * kPanel * k_dim_, ds));
    each_odd_number<V>(chunk.dout, block_.dtype, chunk.dout_stride, chunk.rows,
                       chunk.live, block_.v_head_dim,
                       add(dv_ + i * kPanel * v_dim_, kPack == 2 ? p_ : s_));
  }
  void add_odd_keys(const BackwardChunk& chunk) {
    each_odd_number<V>(
        block_.k, block_.dtype, block_.k_stride, block_.keys, block_.live,
        block_.head_dim, [&](int64_t k, int64_t d, float x) {
          const float* const ds =
              ds_ + k / kPanel * kBackwardRows * kPanel / kPack;
          for (int64_t r = 0; r < chunk.rows; ++r) {
            if (!is_legal(chunk, kBackwardRows, r, k)) continue;
            // In ds, a bf16 pair is two neighbouring keys of one row.
            const int64_t at = r * kPanel + k % kPanel;
            chunk.dq[r * ldk_ + d] += lane_at<Words>(ds, 1, at, 0) * x;
          }
        });
  }
  const BackwardBlock& block_;
  int64_t panels_, k_words_, v_words_, k_dim_, v_dim_, ldq_, ldo_, ldk_;
  float *kt_, *vt_, *k_, *dk_, *dv_, *q_, *o_, *s_, *g_, *ds_;
  float *q_pairs_ = nullptr, *o_pairs_ = nullptr;
  float *p_ = nullptr, *ds_pairs_ = nullptr;
  float* odd_keys_;  // nonzero if k holds a non-finite number
  float* rest_;      // first unused float of the scratch
};

template <class V>
inline void backward_delta(const BackwardDelta& t) {
  for (int64_t r = 0; r < t.rows; ++r) {
    const void* const a = row_at(t.dout, t.dtype, r * t.dout_stride);
    const void* const b = row_at(t.out, t.dtype, r * t.out_stride);
    auto sum = V::zero();
    int64_t d = 0;
    for (; d + V::kLanes <= t.v_head_dim; d += V::kLanes) {
      sum = V::fma(load_row<V>(a, t.dtype, d), load_row<V>(b, t.dtype, d), sum);
    }
    if (const int64_t left = t.v_head_dim - d; left > 0) {
      sum = V::fma(load_some<V>(a, t.dtype, d, left),
                   load_some<V>(b, t.dtype, d, left), sum);
    }
    float lane[V::kLanes];
    V::store(lane, sum);
    for (int half = V::kLanes / 2; half > 0; half /= 2) {
      for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
    }
    t.delta[r] = lane[0];
  }
}

template <class V>
inline void backward_write_dq(const BackwardDq& t) {
  const auto scale = V::set(t.scale);
  for (int64_t r = 0; r < t.rows; ++r) {
    const float* const from = t.sum + r * t.sum_stride;
    void* const to = row_at(t.dq, t.dtype, r * t.dq_stride);
    for (int64_t d = 0; d < t.head_dim; d += V::kLanes) {
      const int64_t left = t.head_dim - d;
      const auto x = V::mul(V::load(from + d), scale);
      if (left >= V::kLanes) {
        store_row<V>(to, t.dtype, d, x);
      } else {
        store_some<V>(to, t.dtype, d, left, x);
      }
    }
  }
}

template <class V>
inline bool backward_finite(const BackwardRows& t) {
  for (int64_t r = 0; r < t.rows; ++r) {
    if (t.live[r] != 0 &&
        !row_is_finite<V>(row_at(t.data, t.dtype, r * t.stride), t.dtype,
                          t.dim)) {
      return false;
    }
  }
  return true;
}

// The entry points of a variant.
template <class V, class Words>
constexpr BackwardKernel backward_kernel() {
  return {[](const BackwardBlock& block) { Backward<V, Words>(block).begin(); },
          [](const BackwardBlock& block, const BackwardChunk& chunk) {
            Backward<V, Words>(block).add(chunk);
          },
          [](const BackwardBlock& block) { Backward<V, Words>(block).end(); },
          [](const BackwardDelta& task) { backward_delta<V>(task); },
          [](const BackwardDq& task) { backward_write_dq<V>(task); },
          [](const BackwardRows& rows) { return backward_finite<V>(rows); }};
}

}  // namespace
}  // namespace tessera::kernels
