// tests/topk_attention_test.cc: attention over topk_idxs of every granularity
// and group form, forward and backward: the reference lane against plain loops
// over the definition, the cpu and xla lanes against the reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lanes/reference/reference.h"
#include "lanes/xla/lane.h"
#include "tessera/layouts.h"
#include "tests/attention_case.h"
#include "tests/plugins.h"
#include "tests/random_topk.h"

namespace tessera::testing {
namespace {

constexpr int64_t kDim = 8;

AttentionCase attention_of(const RandomTopk& c, uint64_t seed) {
  AttentionCase out;
  out.plan.masks = {c.request.masks[0].expr};
  out.plan.batch = c.request.batch;
  out.plan.q_len = c.request.q_len;
  out.plan.kv_len = c.request.kv_len;
  out.plan.tile = c.request.tile;
  out.plan.valid_tokens = c.counts;
  const auto picks = picks_from_topk(c.values, c.shape, c.request);
  EXPECT_TRUE(picks) << picks.error().message;
  out.plan.picks = picks->blocks;
  out.plan.pick_heads = picks->heads;
  out.plan.pick_k = picks->k;
  out.shape = {c.heads, c.kv_heads, kDim, kDim, {}, 0};
  out.sinks = seed % 3 == 0;
  out.dlse = seed % 2 == 0;
  out.dtype = seed % 5 == 0 ? Dtype::bf16 : Dtype::f32;
  out.seed = seed;
  return out;
}

// Dense attention in fp64 over the pairs that `legal` names, one (batch row,
// head) after another, and its gradients for the loss sum(out * dout).
struct Dense {
  std::vector<double> out, lse, dq, dk, dv;
};
Dense dense_attention(const RandomTopk& c, const std::vector<double>& q,
                      const std::vector<double>& k,
                      const std::vector<double>& v,
                      const std::vector<double>& dout) {
  const Request& r = c.request;
  const double scale = 1 / std::sqrt(double{kDim});
  const auto n = static_cast<size_t>(r.kv_len);
  Dense d{std::vector<double>(q.size()),
          {},
          std::vector<double>(q.size()),
          std::vector<double>(k.size()),
          std::vector<double>(v.size())};
  for (int64_t i = 0; i < r.batch * c.heads * r.q_len; ++i) {
    const int64_t b = i / r.q_len / c.heads, h = i / r.q_len % c.heads;
    const int64_t group = h * c.groups / c.heads;
    const int64_t kv_list = b * c.kv_heads + h * c.kv_heads / c.heads;
    const auto at = static_cast<size_t>(i * kDim);
    const size_t kv_at = static_cast<size_t>(kv_list * r.kv_len * kDim);
    std::vector<double> p(n, 0), dp(n, 0);
    double sum = 0, mean = 0;
    for (size_t j = 0; j < n; ++j) {
      if (!c.legal(b, group, i % r.q_len, static_cast<int64_t>(j))) continue;
      double s = 0;
      for (size_t e = 0; e < kDim; ++e) {
        s += q[at + e] * k[kv_at + j * kDim + e];
        dp[j] += dout[at + e] * v[kv_at + j * kDim + e];
      }
      p[j] = std::exp(s * scale);
      sum += p[j];
    }
    d.lse.push_back(std::log(sum));  // -inf without a key
    if (sum == 0) continue;
    for (size_t j = 0; j < n; ++j) {
      p[j] /= sum;
      mean += p[j] * dp[j];
    }
    for (size_t j = 0; j < n; ++j) {
      const double ds = p[j] * (dp[j] - mean) * scale;
      for (size_t e = 0; e < kDim; ++e) {
        const size_t key = kv_at + j * kDim + e;
        d.out[at + e] += p[j] * v[key];
        d.dv[key] += p[j] * dout[at + e];
        d.dq[at + e] += ds * k[key];
        d.dk[key] += ds * q[at + e];
      }
    }
  }
  return d;
}

double max_abs(const std::vector<double>& a) {
  double most = 0;
  for (const double x : a) most = std::max(most, std::abs(x));
  return most;
}

void expect_near(const std::vector<double>& got,
                 const std::vector<double>& want, double tolerance,
                 const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isinf(want[i])) {
      EXPECT_EQ(got[i], want[i]) << what << " " << i;
    } else {
      EXPECT_NEAR(got[i], want[i], tolerance) << what << " " << i;
    }
  }
}

TEST(TopkAttention, TheReferenceIsTheDefinition) {
  int64_t dead = 0;
  for (const RandomTopk& c : topk_cases(3, 24)) {
    std::mt19937_64 random(c.values.size());
    std::normal_distribution<double> normal;
    const Request& r = c.request;
    const auto draw = [&](int64_t lists, int64_t tokens) {
      std::vector<double> out(
          static_cast<size_t>(r.batch * lists * tokens * kDim));
      for (double& x : out) x = normal(random);
      return out;
    };
    const auto q = draw(c.heads, r.q_len), k = draw(c.kv_heads, r.kv_len),
               v = draw(c.kv_heads, r.kv_len), dout = draw(c.heads, r.q_len);
    const Dense want = dense_attention(c, q, k, v, dout);
    const auto picks = picks_from_topk(c.values, c.shape, r);
    ASSERT_TRUE(picks) << picks.error().message;
    Facts facts = c.facts();
    facts.picks = picks->view();
    AttentionShape shape;
    shape.heads = c.heads;
    shape.kv_heads = c.kv_heads;
    shape.head_dim = shape.v_head_dim = kDim;
    const reference::AttentionInputs inputs{q, k, v, {}};
    const auto ran = reference::reference_forward(r, facts, shape, inputs);
    ASSERT_TRUE(ran) << ran.error().message;
    // Both are fp64. The error of a score is a few eps of its terms, the
    // relative error of a probability is as large, and a gradient is a sum of
    // such products.
    const double unit =
        16 * 0x1p-52 * (1 + std::sqrt(double{kDim}) * max_abs(q) * max_abs(k));
    const double ds = unit * 2 * kDim * max_abs(dout) * max_abs(v);
    const auto queries = static_cast<double>(c.heads / c.kv_heads * r.q_len);
    expect_near(ran->out, want.out, unit * max_abs(v), "out");
    expect_near(ran->lse, want.lse, unit, "lse");
    for (size_t i = 0; i < want.lse.size(); ++i) {
      if (!std::isinf(want.lse[i])) continue;
      ++dead;
      for (size_t e = 0; e < kDim; ++e) EXPECT_EQ(ran->out[i * kDim + e], 0.0);
    }
    const auto back =
        reference::reference_backward(r, facts, shape, inputs, dout, {});
    ASSERT_TRUE(back) << back.error().message;
    const double scale = 1 / std::sqrt(double{kDim});
    expect_near(back->dq, want.dq, ds * scale * max_abs(k), "dq");
    expect_near(back->dk, want.dk, ds * scale * max_abs(q) * queries, "dk");
    expect_near(back->dv, want.dv, unit * max_abs(dout) * queries, "dv");
  }
  EXPECT_GT(dead, 100);
}

TEST(TopkAttention, TheCpuLaneIsTheReference) {
  uint64_t seed = 0;
  for (const RandomTopk& c : topk_cases(4, 36)) {
    const AttentionCase of = attention_of(c, seed++);
    EXPECT_EQ(cpu_fault(of), std::nullopt) << describe(of);
  }
}

TEST(TopkAttention, TheXlaLaneIsTheReference) {
  look_in_venv();
  XlaOptions options;
  options.plugin = "xla_cpu_pjrt";
  options.method = XlaMethod::worklist;
  auto lane = xla::XlaLane::open(options);
  if (is_absent(lane)) GTEST_SKIP() << lane.error().message;
  ASSERT_TRUE(lane) << lane.error().message;
  const std::vector<RandomTopk> cases = topk_cases(5, 12);
  // Each granularity and each group form; each one is a separate program.
  for (const size_t i : {0u, 3u, 5u, 8u, 10u}) {
    AttentionArrays arrays(attention_of(cases[i], i));
    const Wanted want = wanted(arrays, true);
    const auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
    ASSERT_TRUE(batch) << batch.error().message;
    const auto forward =
        lane->forward(*batch, arrays.c.shape, arrays.forward(true));
    ASSERT_TRUE(forward) << forward.error().message;
    const auto backward = lane->backward(
        *batch, arrays.c.shape, arrays.forward(true), arrays.gradients());
    ASSERT_TRUE(backward) << backward.error().message;
    EXPECT_EQ(forward_fault(want, arrays.forward(true)), std::nullopt)
        << describe(arrays.c);
    EXPECT_EQ(backward_fault(arrays.c, want, arrays.gradients()), std::nullopt)
        << describe(arrays.c);
    EXPECT_EQ(arrays.spilled(), std::nullopt);
  }
}

}  // namespace
}  // namespace tessera::testing
