// lanes/reference/judge_test.cc: the judge agrees with the reference lane,
// accepts correct fp32 results, and finds wrong ones.
#include "lanes/reference/judge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/float16.h"
#include "base/tensor_rows.h"
#include "lanes/reference/reference.h"
#include "lanes/reference/rows.h"

namespace tessera::reference {
namespace {

struct Problem {
  const char* mask = "causal";
  int64_t batch = 2, q_len = 24, kv_len = 31;
  AttentionShape shape{4, 2, 16, 8, {}, 0};
  bool sinks = true;
  bool dlse = true;
  float spread = 1;  // of q
};

// Random arrays, and outputs as the reference lane rounds them to f32.
class Case {
 public:
  explicit Case(const Problem& s) : s_(s) {
    request.masks = {*parse_mask(s.mask)};
    request.batch = s.batch;
    request.q_len = s.q_len;
    request.kv_len = s.kv_len;
    request.tile = {16, 16};
    const AttentionShape& a = s.shape;
    const int64_t rows = s.batch * a.heads * s.q_len;
    const int64_t keys = s.batch * a.kv_heads * s.kv_len;
    q = random(rows * a.head_dim, s.spread);
    k = random(keys * a.head_dim);
    v = random(keys * a.v_head_dim);
    dout = random(rows * a.v_head_dim);
    if (s.dlse) dlse = random(rows);
    if (s.sinks) sinks = random(a.heads);
    run();
  }

  // Computes the outputs again after a test changed inputs.
  void run() {
    const auto wide = [](const std::vector<float>& x) {
      return std::vector<double>(x.begin(), x.end());
    };
    const auto q64 = wide(q), k64 = wide(k), v64 = wide(v), z64 = wide(sinks);
    AttentionInputs in{q64, k64, v64, {}};
    if (s_.sinks) in.sink_logits = z64;
    forward64 = *reference_forward(request, {}, s_.shape, in);
    backward64 =
        *reference_backward(request, {}, s_.shape, in, wide(dout), wide(dlse));
    const auto narrow = [](const std::vector<double>& x) {
      return std::vector<float>(x.begin(), x.end());
    };
    out = narrow(forward64.out), lse = narrow(forward64.lse);
    dq = narrow(backward64.dq), dk = narrow(backward64.dk);
    dv = narrow(backward64.dv), dsinks = narrow(backward64.dsink_logits);
  }

  ForwardTensors forward() {
    const AttentionShape& a = s_.shape;
    ForwardTensors t;
    t.q = queries<TensorView>(q, a.head_dim);
    t.k = keys<TensorView>(k, a.head_dim);
    t.v = keys<TensorView>(v, a.v_head_dim);
    if (s_.sinks) t.sink_logits = sinks;
    t.out = queries<MutableTensorView>(out, a.v_head_dim);
    t.lse = lse;
    return t;
  }

  Gradients gradients() {
    const AttentionShape& a = s_.shape;
    Gradients t;
    t.dout = queries<TensorView>(dout, a.v_head_dim);
    t.dlse = dlse;
    t.dq = queries<MutableTensorView>(dq, a.head_dim);
    t.dk = keys<MutableTensorView>(dk, a.head_dim);
    t.dv = keys<MutableTensorView>(dv, a.v_head_dim);
    t.dsink_logits = dsinks;
    return t;
  }

  Verdict judge(int64_t rows = 0) {
    JudgeOptions options;
    options.query_rows = options.key_rows = rows;
    Verdict a =
        *judge_declared_forward(request, {}, s_.shape, forward(), options);
    Verdict b = *judge_declared_backward(request, {}, s_.shape, forward(),
                                         gradients(), options);
    return a.max_ratio > b.max_ratio ? a : b;
  }

  Request request;
  std::vector<float> q, k, v, sinks, dout, dlse;
  std::vector<float> out, lse, dq, dk, dv, dsinks;
  AttentionOutputs forward64;
  AttentionGradients backward64;

 private:
  std::vector<float> random(int64_t n, float spread = 1) {
    std::uniform_real_distribution<float> uniform(-spread, spread);
    std::vector<float> x(static_cast<size_t>(n));
    for (float& value : x) value = uniform(engine_);
    return x;
  }
  template <class View>
  View queries(std::vector<float>& x, int64_t dim) {
    return View::bhsd(x.data(), Dtype::f32, s_.batch, s_.shape.heads, s_.q_len,
                      dim);
  }
  template <class View>
  View keys(std::vector<float>& x, int64_t dim) {
    return View::bhsd(x.data(), Dtype::f32, s_.batch, s_.shape.kv_heads,
                      s_.kv_len, dim);
  }

  Problem s_;
  std::mt19937 engine_{1};
};

const Problem kProblems[] = {
    {},
    {"full", 1, 5, 40, {6, 6, 8, 24, -0.5, 0}, false, false},
    {"window(3, 2)", 1, 40, 20, {2, 1, 16, 16, {}, 15}, false, true, 30},
    {"!full", 1, 7, 9, {2, 2, 8, 8, {}, 0}, true, true},
    {"causal & window(0, 0)", 1, 20, 16, {2, 1, 8, 8, {}, 2}, true, false, 9},
};

TEST(Judge, RowsAreThoseOfTheReference) {
  for (const Problem& s : kProblems) {
    Case c(s);
    auto oracle =
        RowOracle::bind(c.request, {}, s.shape, c.forward(), c.gradients());
    ASSERT_TRUE(oracle.ok());
    QueryRow row;
    QueryGradient gradient;
    // The bound counts roundings of fp32 and of the final cast. Both sides here
    // have as many roundings of fp64, which are 2^-29 as large.
    const auto near = [&](double got, double want, double error,
                          const char* what) {
      const double allowed = 2 * 0x1p-29 * (error + kEps32 * std::abs(want));
      EXPECT_NEAR(got, want, allowed) << what << s.mask;
      EXPECT_GE(error, 0) << what << s.mask;
      // A larger bound would prove nothing.
      EXPECT_LE(allowed, 1e-12 * (1 + std::abs(want))) << what << s.mask;
    };
    for (int64_t i = 0; i < s.batch * s.shape.heads * s.q_len; ++i) {
      oracle->forward(i / s.q_len / s.shape.heads, i / s.q_len % s.shape.heads,
                      i % s.q_len, row);
      oracle->backward(row, gradient);
      const auto at = static_cast<size_t>(i);
      if (std::isfinite(c.forward64.lse[at])) {
        near(row.lse.value, c.forward64.lse[at], row.lse.error, "lse ");
      } else {
        EXPECT_EQ(row.lse.value, c.forward64.lse[at]);
      }
      const auto v_dim = static_cast<size_t>(s.shape.v_head_dim);
      for (size_t d = 0; d < v_dim; ++d) {
        near(row.out.value[d], c.forward64.out[at * v_dim + d],
             row.out.error[d], "out ");
      }
      const auto dim = static_cast<size_t>(s.shape.head_dim);
      for (size_t d = 0; d < dim; ++d) {
        near(gradient.dq.value[d], c.backward64.dq[at * dim + d],
             gradient.dq.error[d], "dq ");
      }
    }
  }
}

TEST(Judge, PassesTheReferenceAllAndSampled) {
  for (const Problem& s : kProblems) {
    Case c(s);
    const Verdict all = c.judge();
    EXPECT_TRUE(all.passed()) << s.mask << " " << all.worst;
    const Verdict sampled = c.judge(5);
    EXPECT_TRUE(sampled.passed()) << s.mask << " " << sampled.worst;
    EXPECT_EQ(sampled.rows <= 10, true);
  }
}

TEST(Judge, CatchesEachArrayAndNamesTheElement) {
  struct Wrong {
    std::vector<float> Case::*array;
    const char* name;
  };
  for (const Wrong& w :
       {Wrong{&Case::out, "out"}, Wrong{&Case::lse, "lse"},
        Wrong{&Case::dq, "dq"}, Wrong{&Case::dk, "dk"}, Wrong{&Case::dv, "dv"},
        Wrong{&Case::dsinks, "dsink_logits"}}) {
    // One element somewhere in the middle.
    for (const float by : {1.0f, std::numeric_limits<float>::quiet_NaN(),
                           std::numeric_limits<float>::infinity()}) {
      Case c({});
      std::vector<float>& x = c.*w.array;
      x[x.size() / 2] += by;
      const Verdict v = c.judge();
      EXPECT_FALSE(v.passed()) << w.name;
      // A wrong `out` or `lse` is found before the gradients computed from it.
      EXPECT_TRUE(v.worst.starts_with(std::string(w.name) + "[")) << v.worst;
    }
    // A small error in all elements is found by a sample.
    Case c({});
    for (float& x : c.*w.array) x += 1e-3f;
    EXPECT_FALSE(c.judge(4).passed()) << w.name;
  }
}

std::vector<uint16_t> halves(const std::vector<float>& x) {
  std::vector<uint16_t> y;
  y.reserve(x.size());
  for (const float value : x) y.push_back(to_bf16(value));
  return y;
}

std::vector<float> wide(const std::vector<uint16_t>& x) {
  std::vector<float> y;
  y.reserve(x.size());
  for (const uint16_t bits : x) y.push_back(bf16_to_float(bits));
  return y;
}

// Relative errors of 2^-12 are far beyond fp32 and well within bf16.
TEST(Judge, KnowsTheDtype) {
  Case c({});
  for (float& x : c.out) x *= 1 + 0x1p-12f;
  EXPECT_FALSE(c.judge().passed());
  auto q = halves(c.q), k = halves(c.k), v = halves(c.v);
  c.q = wide(q), c.k = wide(k), c.v = wide(v);
  c.run();
  for (float& x : c.out) x *= 1 + 0x1p-12f;
  auto out = halves(c.out);
  ForwardTensors t = c.forward();
  t.q.data = q.data(), t.k.data = k.data(), t.v.data = v.data();
  t.out.data = out.data();
  t.q.dtype = t.k.dtype = t.v.dtype = t.out.dtype = Dtype::bf16;
  const AttentionShape shape = Problem{}.shape;
  const Verdict verdict = *judge_declared_forward(c.request, {}, shape, t);
  EXPECT_TRUE(verdict.passed()) << verdict.worst;
  for (uint16_t& bits : out) bits += 8;  // a relative change of about 2^-4
  EXPECT_FALSE(judge_declared_forward(c.request, {}, shape, t)->passed());
}

// If probabilities are summed after rounding to bf16, the log-sum-exp is off by
// that rounding, but out is still a mean of the values.
TEST(Judge, KnowsARoundedRowSum) {
  const Problem problem;
  const AttentionShape& shape = problem.shape;
  Case c(problem);
  auto q = halves(c.q), k = halves(c.k), v = halves(c.v);
  c.q = wide(q), c.k = wide(k), c.v = wide(v);
  c.run();
  auto out = halves(c.out);
  ForwardTensors t = c.forward();
  t.q.data = q.data(), t.k.data = k.data(), t.v.data = v.data();
  t.out.data = out.data();
  t.q.dtype = t.k.dtype = t.v.dtype = t.out.dtype = Dtype::bf16;
  auto oracle = RowOracle::bind(c.request, {}, shape, t);
  ASSERT_TRUE(oracle.ok());
  const auto dim = static_cast<size_t>(shape.v_head_dim);
  const int64_t rows = problem.batch * shape.heads * problem.q_len;
  QueryRow row;
  for (int64_t i = 0; i < rows; ++i) {
    const int64_t h = i / problem.q_len % shape.heads;
    const int64_t b = i / problem.q_len / shape.heads;
    oracle->forward(b, h, i % problem.q_len, row);
    const int64_t kv_row =
        b * shape.kv_heads + h * shape.kv_heads / shape.heads;
    double sum = row.sink_probability;
    std::vector<double> mean(dim);
    for (size_t j = 0; j < row.keys.size(); ++j) {
      const double p = bf16_to_float(to_bf16(row.probability[j]));
      sum += p;
      const auto key =
          static_cast<size_t>(kv_row * problem.kv_len + row.keys[j]);
      for (size_t d = 0; d < dim; ++d) mean[d] += p * c.v[key * dim + d];
    }
    const auto at = static_cast<size_t>(i);
    for (size_t d = 0; d < dim; ++d) {
      out[at * dim + d] = to_bf16(mean[d] / sum);
    }
    c.lse[at] = static_cast<float>(row.lse.value + std::log(sum));
  }
  const auto judged = [&](bool rounded) {
    JudgeOptions options;
    options.rounded_sum = rounded;
    return *judge_declared_forward(c.request, {}, shape, t, options);
  };
  EXPECT_TRUE(judged(true).passed()) << judged(true).worst;
  const Verdict exact = judged(false);
  EXPECT_FALSE(exact.passed());
  EXPECT_TRUE(exact.worst.starts_with("lse[")) << exact.worst;
  c.lse.back() += 0x1p-6F;
  EXPECT_FALSE(judged(true).passed());
}

TEST(Judge, NanInputsMustShow) {
  Problem s;
  s.sinks = false;
  Case c(s);
  c.v[3] = std::numeric_limits<float>::quiet_NaN();
  c.run();
  EXPECT_TRUE(c.judge().passed());
  for (float& x : c.out) {
    if (std::isnan(x)) x = 0;
  }
  EXPECT_FALSE(c.judge().passed());
}

// A key with a score of -inf has probability 0 and changes no other bound.
TEST(Judge, InfiniteScoresAreExact) {
  Problem problem;
  problem.mask = "full";
  Case c(problem);
  for (float& x : c.q) x = std::abs(x) + 0.1F;
  const auto last = c.k.end() - problem.shape.head_dim;
  *last = -std::numeric_limits<float>::infinity();
  c.run();
  const int64_t rows = problem.batch * problem.shape.heads * problem.q_len;
  const auto judged = [&] {
    return *judge_declared_forward(c.request, {}, problem.shape, c.forward(),
                                   {});
  };
  EXPECT_TRUE(judged().passed()) << judged().worst;
  EXPECT_EQ(judged().rows, rows);
  c.out.back() += 1e-3F;
  EXPECT_FALSE(judged().passed());
}

// Subnormal gradients may be off by their last bit.
TEST(Judge, SubnormalGradientsMayLoseTheirLastBit) {
  Case c({});
  for (float& x : c.k) x *= 1e-40F;
  c.run();
  EXPECT_TRUE(c.judge().passed()) << c.judge().worst;
  for (float& x : c.dq) x += 0x1p-149F;
  EXPECT_TRUE(c.judge().passed()) << c.judge().worst;
  for (float& x : c.dq) x += 0x1p-130F;
  EXPECT_FALSE(c.judge().passed());
}

TEST(Judge, WhatIsSmallIsJudgedWhole) {
  Request request;
  request.q_len = request.kv_len = 1024;
  EXPECT_TRUE(can_judge_all(request, {16, 16, 64, 64, {}, 0}));
  EXPECT_FALSE(can_judge_all(request, {32, 16, 64, 64, {}, 0}));
  request.q_len = request.kv_len = kMaxTokens;
  request.batch = kMaxBatch;
  EXPECT_FALSE(can_judge_all(request, {1 << 16, 1, 64, 64, {}, 0}));
}

}  // namespace
}  // namespace tessera::reference
