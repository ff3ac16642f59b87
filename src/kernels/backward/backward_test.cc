// kernels/backward/backward_test.cc: the backward kernels alone, on every ISA
// of this machine, against fp64 within the bounds of lanes/reference/bound.cc.
#include "kernels/backward/backward.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

#include "base/tensor_rows.h"
#include "lanes/cpu/call.h"
#include "tests/kernel_case.h"

namespace tessera::kernels {
namespace {

using testing::AttentionArrays;
using testing::each_variant;
using testing::edge_size;
using testing::Floats;
using testing::kernel_case;
using testing::KernelCase;
using testing::Layers;
using testing::layers_of;
using testing::Wanted;
using testing::wanted;

// Writes the outputs of forward: the reference's values, rounded once.
void write_forward(const Wanted& want, AttentionArrays& arrays) {
  const ForwardTensors t = arrays.forward(true);
  std::vector<double> row(static_cast<size_t>(t.out.dim));
  size_t at = 0;
  for (int64_t h = 0; h < t.out.heads; ++h) {
    for (int64_t q = 0; q < t.out.tokens; ++q) {
      for (double& x : row) x = want.out[at++].value;
      write_row(t.out, 0, h, q, row.data());
    }
  }
  for (size_t i = 0; i < t.lse.size(); ++i) {
    t.lse[i] = static_cast<float>(want.lse[i].value);
  }
}

// One call: rows of all heads, then block after block.
class Call {
 public:
  Call(const KernelCase& c, AttentionArrays& arrays,
       const BackwardKernel& kernel)
      : c_(c),
        t_(arrays.forward(true)),
        g_(arrays.gradients()),
        s_(c.attention.shape),
        kernel_(kernel),
        row_floats_(dq_row_floats(s_.head_dim)),
        dq_(s_.heads * c.q_len() * row_floats_),
        lse_(s_.heads * c.q_len()),
        delta_(s_.heads * c.q_len()) {
    for (int64_t q = 0; q < c.q_len(); ++q) {
      live_.push_back(c.has_key(q) ? 1 : 0);
    }
    std::fill_n(dq_.data(), s_.heads * c.q_len() * row_floats_, 0.0F);
    for (int64_t h = 0; h < s_.heads; ++h) read_rows(h);
  }

  // Blocks of at most `keys` keys against chunks of at most `rows` queries.
  std::optional<std::string> run(int64_t keys, int64_t rows) {
    for (int64_t k = 0; k < c_.kv_len(); k += keys) {
      if (auto f = run_block(k, std::min(k + keys, c_.kv_len()), rows)) {
        return f;
      }
    }
    for (int64_t h = 0; h < s_.heads; ++h) {
      kernel_.write_dq({t_.q.dtype, c_.q_len(), s_.head_dim, dq_of(h, 0),
                        row_floats_, cpu::scale_of(s_),
                        cpu::element(g_.dq, 0, h, 0), g_.dq.token_stride});
    }
    if (!dq_.intact()) return "the kernel wrote behind dq's sums";
    if (!delta_.intact()) return "the kernel wrote behind delta";
    if (pairs_ < s_.heads * c_.pairs() || pairs_ > most_pairs_) {
      return "the count of pairs is wrong: " + std::to_string(pairs_);
    }
    return {};
  }

 private:
  float* dq_of(int64_t h, int64_t q) {
    return dq_.data() + (h * c_.q_len() + q) * row_floats_;
  }

  void read_rows(int64_t h) {
    const int64_t first = h * c_.q_len();
    float* const delta = delta_.data() + first;
    kernel_.delta({t_.q.dtype, c_.q_len(), s_.v_head_dim,
                   cpu::element(g_.dout, 0, h, 0),
                   cpu::element(t_.out, 0, h, 0), g_.dout.token_stride,
                   t_.out.token_stride, delta});
    bool finite = kernel_.finite({t_.q.dtype, c_.q_len(), s_.head_dim,
                                  cpu::element(t_.q, 0, h, 0),
                                  t_.q.token_stride, live_.data()});
    for (int64_t q = 0; q < c_.q_len(); ++q) {
      const auto i = static_cast<size_t>(first + q);
      const bool live = live_[static_cast<size_t>(q)] != 0;
      if (!live) delta[q] = 0;
      if (live && !g_.dlse.empty()) delta[q] -= g_.dlse[i];
      lse_.data()[i] = live ? t_.lse[i] * 1.44269504F : 0;
      finite &= std::isfinite(delta[q]);
    }
    finite_.push_back(finite);
  }

  std::optional<std::string> run_block(int64_t begin, int64_t end,
                                       int64_t rows) {
    Floats scratch(backward_scratch(s_.head_dim, s_.v_head_dim));
    BackwardBlock block;
    block.dtype = t_.q.dtype;
    block.keys = end - begin;
    block.head_dim = s_.head_dim;
    block.v_head_dim = s_.v_head_dim;
    block.k = cpu::element(t_.k, 0, 0, begin);
    block.v = cpu::element(t_.v, 0, 0, begin);
    block.dk = cpu::element(g_.dk, 0, 0, begin);
    block.dv = cpu::element(g_.dv, 0, 0, begin);
    block.k_stride = t_.k.token_stride;
    block.v_stride = t_.v.token_stride;
    block.dk_stride = g_.dk.token_stride;
    block.dv_stride = g_.dv.token_stride;
    block.scale = cpu::scale_of(s_);
    block.softcap = static_cast<float>(s_.softcap);
    std::vector<uint8_t> live;
    for (int64_t k = begin; k < end; ++k) {
      live.push_back(c_.is_live(k, 0, c_.q_len()) ? 1 : 0);
    }
    const bool all = std::find(live.begin(), live.end(), 0) == live.end();
    block.live = all ? nullptr : live.data();
    block.dq_row = row_floats_;
    block.scratch = scratch.data();
    block.pairs = &pairs_;
    kernel_.begin(block);
    for (int64_t h = 0; h < s_.heads; ++h) {
      for (int64_t q = 0; q < c_.q_len(); q += rows) {
        add(block, begin, h, q, std::min(q + rows, c_.q_len()));
      }
    }
    kernel_.end(block);
    if (!scratch.intact()) return "the kernel wrote behind its scratch";
    return {};
  }

  void add(const BackwardBlock& block, int64_t k_begin, int64_t h, int64_t q,
           int64_t q_end) {
    Layers layers = layers_of(c_, q, q_end, k_begin, k_begin + block.keys, 1,
                              kBackwardRows);
    if (!layers.any) return;
    // A lane without a key must be masked, so only whole blocks have no layer.
    if (layers.count == 0 && block.keys < kBackwardKeys) {
      layers.count = 1;
      layers.first.assign(static_cast<size_t>(kBackwardRows), 0);
      layers.last.assign(static_cast<size_t>(kBackwardRows),
                         static_cast<int32_t>(block.keys));
    }
    BackwardChunk chunk;
    chunk.rows = q_end - q;
    chunk.layers = layers.count;
    if (layers.count > 0) {
      chunk.first = layers.first.data();
      chunk.last = layers.last.data();
    }
    const auto row = static_cast<size_t>(h * c_.q_len() + q);
    chunk.q = cpu::element(t_.q, 0, h, q);
    chunk.dout = cpu::element(g_.dout, 0, h, q);
    chunk.q_stride = t_.q.token_stride;
    chunk.dout_stride = g_.dout.token_stride;
    chunk.lse = lse_.data() + row;
    chunk.delta = delta_.data() + row;
    chunk.live = live_.data() + q;
    chunk.finite = finite_[static_cast<size_t>(h)];
    chunk.dq = dq_of(h, q);
    kernel_.add(block, chunk);
    most_pairs_ += chunk.rows * kBackwardKeys;
  }

  const KernelCase& c_;
  const ForwardTensors t_;
  const Gradients g_;
  const AttentionShape& s_;
  const BackwardKernel& kernel_;
  int64_t row_floats_;
  Floats dq_, lse_, delta_;
  std::vector<uint8_t> live_;
  std::vector<bool> finite_;  // per head
  int64_t pairs_ = 0, most_pairs_ = 0;
};

std::optional<std::string> fault(const KernelCase& c, AttentionArrays& arrays,
                                 const Wanted& want, int64_t keys,
                                 int64_t rows) {
  return each_variant(
      backward_variants(), c.attention.dtype,
      [&](const BackwardVariant& variant) -> std::optional<std::string> {
        arrays.clear_outputs();
        write_forward(want, arrays);
        Call call(c, arrays, variant.kernel());
        if (auto f = call.run(keys, rows)) return f;
        if (auto f = backward_fault(c.attention, want, arrays.gradients())) {
          return f;
        }
        return arrays.spilled();
      });
}

TEST(BackwardKernel, EverySizeAroundTheLanes) {
  for (int64_t n = 1; n <= 70; ++n) {
    testing::KernelSizes sizes;
    sizes.q_len = n * 37 % 140 + 1;
    sizes.kv_len = n;
    sizes.head_dim = n % 32 * 8 + 8;
    sizes.v_head_dim = n * 5 % 32 * 8 + 8;
    const KernelCase c = kernel_case(sizes, static_cast<uint64_t>(n));
    AttentionArrays arrays(c.attention);
    EXPECT_EQ(fault(c, arrays, wanted(arrays), kBackwardKeys, kBackwardRows),
              std::nullopt)
        << n << ": " << describe(c.attention);
  }
}

TEST(BackwardKernel, RandomCallsAreWithinTheirBounds) {
  const auto first = static_cast<int64_t>(testing::first_seed(1));
  for (int64_t i = 0; i < testing::case_count(120); ++i) {
    std::mt19937_64 random(static_cast<uint64_t>(first + i));
    testing::KernelSizes sizes;
    sizes.q_len = edge_size(random, 300);
    sizes.kv_len = edge_size(random, 300);
    sizes.heads = 1 + i % 2;
    sizes.head_dim = 8 * edge_size(random, 17);
    sizes.v_head_dim = 8 * edge_size(random, 17);
    KernelCase c = kernel_case(sizes, static_cast<uint64_t>(first + i));
    c.attention.dlse = random() % 2 == 0;
    AttentionArrays arrays(c.attention);
    const bool whole = random() % 2 == 0;
    const int64_t keys = whole ? kBackwardKeys : edge_size(random, 65);
    const int64_t rows = whole ? kBackwardRows : edge_size(random, 65);
    EXPECT_EQ(fault(c, arrays, wanted(arrays), keys, rows), std::nullopt)
        << "seed " << first + i << ", blocks of " << keys << ", chunks of "
        << rows << ": " << describe(c.attention);
  }
}

double dot(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// Gradients of one head in fp64 by the kernels' own formula, delta = dout .
// out, from the outputs of forward. The reference uses a sum of p times dout .
// v instead, which is equal unless dout is infinite: then one is Inf and the
// other may be NaN.
struct PlainGradients {
  std::vector<double> dq, dk, dv;
};
PlainGradients plain_gradients(const KernelCase& c, AttentionArrays& arrays) {
  const ForwardTensors t = arrays.forward(true);
  const TensorView given = arrays.gradients().dout;
  const AttentionShape& s = c.attention.shape;
  const auto dim = static_cast<size_t>(s.head_dim);
  const auto v_dim = static_cast<size_t>(s.v_head_dim);
  const auto row = [](const TensorView& from, int64_t i) {
    std::vector<double> out(static_cast<size_t>(from.dim));
    read_row(from, 0, 0, i, out.data());
    return out;
  };
  PlainGradients g;
  g.dq.resize(static_cast<size_t>(c.q_len()) * dim);
  g.dk.resize(static_cast<size_t>(c.kv_len()) * dim);
  g.dv.resize(static_cast<size_t>(c.kv_len()) * v_dim);
  for (int64_t i = 0; i < c.q_len(); ++i) {
    const auto q = row(t.q, i), dout = row(given, i),
               out = row(as_input(t.out), i);
    const double delta = dot(dout, out);
    for (int64_t j = 0; j < c.kv_len(); ++j) {
      if (!c.is_legal(i, j)) continue;
      const auto k = row(t.k, j), v = row(t.v, j);
      double score = s.scale_or_default() * dot(q, k), slope = 1;
      if (s.softcap > 0) {
        const double tanh = std::tanh(score / s.softcap);
        score = s.softcap * tanh;
        slope = 1 - tanh * tanh;
      }
      const double p = std::exp(score - t.lse[static_cast<size_t>(i)]);
      const double ds =
          p * (dot(dout, v) - delta) * slope * s.scale_or_default();
      const size_t iq = static_cast<size_t>(i) * dim;
      const size_t jk = static_cast<size_t>(j) * dim;
      for (size_t d = 0; d < dim; ++d) {
        g.dq[iq + d] += ds * k[d];
        g.dk[jk + d] += ds * q[d];
      }
      const size_t jv = static_cast<size_t>(j) * v_dim;
      for (size_t d = 0; d < v_dim; ++d) g.dv[jv + d] += p * dout[d];
    }
  }
  return g;
}

// Where the formula gives NaN or Inf, the kernel must give the same kind and
// sign. The reference must be NaN or Inf at the same places and no others.
int64_t expect_kinds(const std::vector<double>& plain,
                     std::vector<reference::Expected>& want) {
  int64_t odd = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    EXPECT_EQ(std::isfinite(plain[i]), std::isfinite(want[i].value)) << i;
    if (std::isfinite(plain[i])) continue;
    want[i] = {plain[i], 0};
    ++odd;
  }
  return odd;
}

// Puts two non-finite numbers into every pair of arrays: they reach only the
// gradients of their legal pairs.
TEST(BackwardKernel, OddNumbersStayWithTheirPairs) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInf = std::numeric_limits<double>::infinity();
  constexpr double kOdd[] = {kNan, kInf, -kInf};
  constexpr const char* kArrays[] = {"dd", "dv", "dk", "dq", "vv",
                                     "vk", "vq", "kk", "kq", "qq"};
  int64_t odd = 0;
  for (uint64_t seed = 1; seed <= 120; ++seed) {
    std::mt19937_64 random(seed);
    testing::KernelSizes sizes;
    sizes.q_len = edge_size(random, 70);
    sizes.kv_len = edge_size(random, 140);
    sizes.head_dim = sizes.v_head_dim = 24;
    KernelCase c = kernel_case(sizes, seed);
    c.attention.shape.scale.reset();
    c.attention.q_size = 1;  // no probability is 0
    AttentionArrays arrays(c.attention);
    for (const char* array = kArrays[seed % std::size(kArrays)]; *array;
         ++array) {
      const bool query = *array == 'q' || *array == 'd';
      const auto token = static_cast<int64_t>(
          random() % static_cast<uint64_t>(query ? c.q_len() : c.kv_len()));
      const auto d = static_cast<int64_t>(random() % 24);
      double x = kOdd[random() % 3];
      // At an infinite score the slope of the cap is about 0, so NaN is used
      // instead.
      if (c.attention.shape.softcap > 0 && (*array == 'q' || *array == 'k')) {
        x = kNan;
      }
      if (query ? c.has_key(token) : c.is_live(token, 0, c.q_len())) {
        arrays.set(*array, 0, 0, token, d, x);
      }
    }
    Wanted want = wanted(arrays);
    write_forward(want, arrays);
    const PlainGradients plain = plain_gradients(c, arrays);
    odd += expect_kinds(plain.dq, want.dq) + expect_kinds(plain.dk, want.dk) +
           expect_kinds(plain.dv, want.dv);
    EXPECT_EQ(fault(c, arrays, want, kBackwardKeys, kBackwardRows),
              std::nullopt)
        << "seed " << seed << ": " << describe(c.attention);
  }
  EXPECT_GT(odd, 10000);
}

}  // namespace
}  // namespace tessera::kernels
