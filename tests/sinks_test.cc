// tests/sinks_test.cc: sinks that are joined after the cpu lane give the output
// and the gradients of the reference with sinks, and the log-sum-exp of a run
// without them. The bounds are those of one call that has the sinks itself.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <tuple>

#include "base/float16.h"
#include "lanes/cpu/cpu.h"
#include "lanes/reference/reference.h"
#include "tessera/attention.h"
#include "tessera/layouts.h"
#include "tests/attention_case.h"
#include "tests/random_topk.h"

namespace tessera::testing {
namespace {

constexpr int64_t kDim = 8;
constexpr float kInf = std::numeric_limits<float>::infinity();

using Floats = std::vector<float>;

class Sinks : public ::testing::Test {
 protected:
  Floats draw(int64_t count, float size = 1) {
    std::normal_distribution<float> normal;
    Floats out;
    for (int64_t i = 0; i < count; ++i) out.push_back(size * normal(random_));
    return out;
  }
  std::mt19937_64 random_{11};
};

// The sum of two calls' gradients and errors, for one call that has both parts.
std::vector<reference::Expected> sum(
    std::vector<reference::Expected> a,
    const std::vector<reference::Expected>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    a[i].value += b[i].value;
    a[i].error += b[i].error;
  }
  return a;
}

void expect_within(const Floats& got,
                   const std::vector<reference::Expected>& want,
                   const char* what) {
  EXPECT_EQ(values_fault(what, want, got), std::nullopt);
}

TEST_F(Sinks, AreTheReferencesAndStayOutOfTheLogSumExp) {
  int64_t dead = 0;
  for (const RandomTopk& c : topk_cases(9, 24)) {
    const Request& r = c.request;
    const int64_t nq = r.batch * c.heads * r.q_len;
    const int64_t nk = r.batch * c.kv_heads * r.kv_len;
    const Floats q = draw(nq * kDim), k = draw(nk * kDim), v = draw(nk * kDim),
                 dout = draw(nq * kDim), dlse = draw(nq),
                 sinks = draw(c.heads, 3);
    OwnedFacts facts = own_facts(c.facts());
    const auto picks = picks_from_topk(c.values, c.shape, r);
    ASSERT_TRUE(picks);
    facts.picks = picks->blocks;
    facts.picks_heads = picks->heads;
    facts.picks_k = picks->k;
    AttentionShape shape;
    shape.heads = c.heads;
    shape.kv_heads = c.kv_heads;
    shape.head_dim = shape.v_head_dim = kDim;

    const auto of_queries = [&](const std::vector<float>& x) {
      return TensorView::bhsd(x.data(), Dtype::f32, r.batch, c.heads, r.q_len,
                              kDim);
    };
    const auto of_keys = [&](const std::vector<float>& x) {
      return TensorView::bhsd(x.data(), Dtype::f32, r.batch, c.kv_heads,
                              r.kv_len, kDim);
    };
    const auto to_queries = [&](std::vector<float>& x) {
      return MutableTensorView::bhsd(x.data(), Dtype::f32, r.batch, c.heads,
                                     r.q_len, kDim);
    };
    const auto to_keys = [&](std::vector<float>& x) {
      return MutableTensorView::bhsd(x.data(), Dtype::f32, r.batch, c.kv_heads,
                                     r.kv_len, kDim);
    };

    // The gradient of the output goes to a call with sinks, that of the
    // log-sum-exp to one without.
    const Facts view = facts.view();
    std::vector<float> out(q.size()), lse(static_cast<size_t>(nq)),
        joined(out.size());
    const ForwardTensors t{of_queries(q),   of_keys(k), of_keys(v), {},
                           to_queries(out), lse};
    ForwardTensors with = t;
    with.sink_logits = sinks;
    Gradients by_out, by_lse;
    by_out.dout = of_queries(dout);
    const Floats zeros(dout.size());
    by_lse.dout = of_queries(zeros);
    by_lse.dlse = dlse;
    const Wanted want = wanted_of(r, view, shape, with, by_out);
    const Wanted plain = wanted_of(r, view, shape, t, by_lse);

    const auto batch = OwnedBatch::make(r, facts);
    ASSERT_TRUE(batch);
    const auto work = cpu::cpu_prepare(*batch);
    ASSERT_TRUE(work);
    ASSERT_TRUE(cpu::cpu_forward(*work, shape, t));
    ASSERT_TRUE(join_sinks(as_input(t.out), lse, sinks, to_queries(joined)));
    expect_within(joined, want.out, "out");
    expect_within(lse, plain.lse, "lse");

    std::vector<float> given = dout;
    for (size_t i = 0; i < lse.size(); ++i) {
      if (lse[i] != -kInf) continue;
      ++dead;
      for (size_t d = 0; d < kDim; ++d) {
        EXPECT_EQ(joined[i * kDim + d], 0.0F);
        given[i * kDim + d] = std::numeric_limits<float>::quiet_NaN();
      }
    }
    std::vector<float> inner(given.size()), inner_dlse(lse.size()),
        dsinks(sinks.size());
    ASSERT_TRUE(sink_gradients(of_queries(joined), lse, sinks,
                               of_queries(given), dlse,
                               {to_queries(inner), inner_dlse, dsinks}));
    std::vector<float> dq(q.size()), dk(k.size()), dv(v.size());
    const auto ran = cpu::cpu_backward(*work, shape, t,
                                       {of_queries(inner),
                                        inner_dlse,
                                        to_queries(dq),
                                        to_keys(dk),
                                        to_keys(dv),
                                        {}});
    ASSERT_TRUE(ran) << ran.error().message;
    expect_within(dq, sum(want.dq, plain.dq), "dq");
    expect_within(dk, sum(want.dk, plain.dk), "dk");
    expect_within(dv, sum(want.dv, plain.dv), "dv");
    // Without a legal key the reference's log-sum-exp is the logit. The output
    // is 0 nevertheless, so no gradient reaches the logit.
    expect_within(dsinks, want.dsinks, "dsink_logits");

    // The same in place, and without a gradient of the log-sum-exp.
    ASSERT_TRUE(join_sinks(as_input(t.out), lse, sinks, t.out));
    EXPECT_EQ(out, joined);
    std::vector<float> none(lse.size()), again(dsinks.size());
    ASSERT_TRUE(sink_gradients(of_queries(joined), lse, sinks,
                               of_queries(given), {},
                               {to_queries(given), none, again}));
    EXPECT_EQ(given, inner);
    EXPECT_EQ(again, dsinks);
    for (size_t i = 0; i < none.size(); ++i) {
      // Both are one fp64 sum rounded to fp32.
      EXPECT_NEAR(double{none[i]} + double{dlse[i]}, inner_dlse[i],
                  reference::kEps32 *
                      double{std::abs(none[i]) + std::abs(inner_dlse[i])});
    }
  }
  EXPECT_GT(dead, 100);
}

TEST_F(Sinks, OfAnySizeAndRoundedOnce) {
  std::vector<uint16_t> out = {0x4040, 0xc0a0};  // 3 and -5
  std::vector<uint16_t> joined(2);
  const auto view = [](auto& x) {
    return TensorView::bhsd(x.data(), Dtype::bf16, 1, 2, 1, 1);
  };
  const auto to = [](auto& x) {
    return MutableTensorView::bhsd(x.data(), Dtype::bf16, 1, 2, 1, 1);
  };
  const auto join = [&](std::vector<float> lse, std::vector<float> sinks) {
    EXPECT_TRUE(join_sinks(view(out), lse, sinks, to(joined)));
    return std::vector<float>{bf16_to_float(joined[0]),
                              bf16_to_float(joined[1])};
  };
  EXPECT_EQ(join({0, 0}, {-kInf, kInf}), (std::vector<float>{3, 0}));
  EXPECT_EQ(join({1e30F, -1e30F}, {1e30F, 0}), (std::vector<float>{1.5F, 0}));
  EXPECT_EQ(join({0, 0}, {3e38F, -3e38F}), (std::vector<float>{0, -5}));
  const auto two = static_cast<float>(std::log(2.0));
  EXPECT_EQ(join({0, two}, {two, 0}), (std::vector<float>{1, -3.328125F}));
}

TEST_F(Sinks, RefuseWhatDoesNotFit) {
  std::vector<float> x(8), one(1), two(2);
  const auto view = TensorView::bhsd(x.data(), Dtype::f32, 1, 2, 1, 4);
  auto to = MutableTensorView::bhsd(x.data(), Dtype::f32, 1, 2, 1, 4);
  const auto message = [](const Result<void>& r) {
    return r ? std::string("none") : r.error().message;
  };
  EXPECT_EQ(message(join_sinks(view, two, two, to)), "none");
  EXPECT_EQ(message(join_sinks(view, one, two, to)),
            "[sinks] lse must hold [batch, heads, tokens] = 2 values, found 1");
  EXPECT_EQ(message(join_sinks(view, two, one, to)),
            "[sinks] sink_logits must hold [heads] = 2 values, found 1");
  EXPECT_EQ(message(sink_gradients(view, two, two, view, one, {to, two, two})),
            "[sinks] dlse must hold [batch, heads, tokens] or nothing = 2 "
            "values, found 1");
  EXPECT_EQ(message(sink_gradients(view, two, two, view, {}, {to, one, two})),
            "[sinks] dlse to write must hold [batch, heads, tokens] = 2 "
            "values, found 1");
  EXPECT_EQ(message(sink_gradients(view, two, two, view, {}, {to, two, one})),
            "[sinks] dsink_logits must hold [heads] = 2 values, found 1");
  to.data = x.data() + 1;
  EXPECT_EQ(message(join_sinks(view, two, two, to)),
            "[sinks] joined must be out itself or lie before or behind it, "
            "found one that meets it");
  std::vector<float> y(9);
  const auto apart = TensorView::bhsd(y.data(), Dtype::f32, 1, 2, 1, 4);
  for (const auto& [joined, dout, name] :
       {std::tuple(apart, view, "dout"), std::tuple(view, apart, "joined")}) {
    EXPECT_EQ(
        message(sink_gradients(joined, two, two, dout, {}, {to, two, two})),
        fmt::format("[sinks] dout to write must be {} itself or lie before or "
                    "behind it, found one that meets it",
                    name));
  }
  to.data = x.data();
  to.dim = 3;
  EXPECT_EQ(message(join_sinks(view, two, two, to)),
            "[sinks] joined must be there, F32, BF16 or F16, and all of one "
            "shape and dtype, found [1, 2, 1, 3] of F32");
  to.dim = 4;
  to.data = nullptr;
  EXPECT_EQ(message(join_sinks(view, two, two, to)),
            "[sinks] joined must be there, F32, BF16 or F16, and all of one "
            "shape and dtype, found [1, 2, 1, 4] of F32, nowhere");
}

}  // namespace
}  // namespace tessera::testing
