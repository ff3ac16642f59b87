// tests/route_attention_test.cc: attention over a router's picks. The picks are
// fixed, so all gradients are those of attention.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "lanes/cpu/cpu.h"
#include "plan/make_plan.h"
#include "tessera/route.h"
#include "tests/attention_case.h"

namespace tessera {
namespace {

constexpr int64_t kTokens = 72;
constexpr int64_t kHeads = 4;
constexpr int64_t kKvHeads = 2;
constexpr int64_t kDim = 8;
constexpr double kUnit = reference::kEps32;

std::vector<float> drawn(int64_t heads, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(static_cast<size_t>(heads * kTokens * kDim));
  for (float& x : out) x = normal(random);
  return out;
}

struct Arrays {
  std::vector<float> q = drawn(kHeads, 1), k = drawn(kKvHeads, 2),
                     v = drawn(kKvHeads, 3), dout = drawn(kHeads, 4);
};

// Two documents; each query picks two blocks of 8 keys.
class RouteAttention : public ::testing::TestWithParam<RouteMeaning> {
 protected:
  RouteAttention() {
    for (int64_t t = 0; t < kTokens; ++t) ids_.push_back(t < 41 ? 0 : 1);
    request_.masks = {*parse_mask("causal & documents & routed(2, 8)")};
    request_.q_len = request_.kv_len = kTokens;
    request_.tile = {16, 8};
    facts_.doc_ids = ids_;
    settings_.top = 2;
    settings_.block = settings_.compression = 8;
    settings_.stride = 4;
    settings_.kv_tile = 16;
    settings_.query_tile = 16;
    settings_.meaning = GetParam();
    shape_.heads = kHeads;
    shape_.kv_heads = kKvHeads;
    shape_.head_dim = shape_.v_head_dim = kDim;
  }

  RouteResult routed(const Arrays& a) const {
    RouteInputs in;
    in.q = TensorView::bhsd(a.q.data(), Dtype::f32, 1, kHeads, kTokens, kDim);
    in.k = TensorView::bhsd(a.k.data(), Dtype::f32, 1, kKvHeads, kTokens, kDim);
    auto r = route(request_, facts_, in, settings_);
    EXPECT_TRUE(r) << r.error().message;
    return *r;
  }

  struct Gradients {
    std::vector<float> out, lse, dq, dk, dv;
    bool operator==(const Gradients&) const = default;
  };
  Gradients attend(const Arrays& a, const RouteResult& picks) const {
    const Facts facts = picks.facts(facts_);
    auto plan = plan::make_plan(request_, facts);
    EXPECT_TRUE(plan) << plan.error().message;
    auto work = cpu::cpu_prepare(*BorrowedBatch::make(request_, facts));
    EXPECT_TRUE(work) << work.error().message;
    Gradients g{std::vector<float>(a.q.size()),
                std::vector<float>(static_cast<size_t>(kHeads * kTokens)),
                std::vector<float>(a.q.size()), std::vector<float>(a.k.size()),
                std::vector<float>(a.v.size())};
    const auto of = [](const std::vector<float>& x, int64_t heads) {
      return TensorView::bhsd(x.data(), Dtype::f32, 1, heads, kTokens, kDim);
    };
    const auto to = [](std::vector<float>& x, int64_t heads) {
      return MutableTensorView::bhsd(x.data(), Dtype::f32, 1, heads, kTokens,
                                     kDim);
    };
    const ForwardTensors forward{of(a.q, kHeads),   of(a.k, kKvHeads),
                                 of(a.v, kKvHeads), {},
                                 to(g.out, kHeads), g.lse};
    auto ran = cpu::cpu_forward(*work, shape_, forward);
    EXPECT_TRUE(ran) << ran.error().message;
    const tessera::Gradients gradients{of(a.dout, kHeads), {},
                                       to(g.dq, kHeads),   to(g.dk, kKvHeads),
                                       to(g.dv, kKvHeads), {}};
    ran = cpu::cpu_backward(*work, shape_, forward, gradients);
    EXPECT_TRUE(ran) << ran.error().message;
    return g;
  }

  // The expected values by the judge's reference, with the errors that fp32 may
  // have.
  testing::Wanted wanted(const Arrays& a, const RouteResult& picks) const {
    const auto of = [](const std::vector<float>& x, int64_t heads) {
      return TensorView::bhsd(x.data(), Dtype::f32, 1, heads, kTokens, kDim);
    };
    ForwardTensors t;
    t.q = of(a.q, kHeads), t.k = of(a.k, kKvHeads), t.v = of(a.v, kKvHeads);
    tessera::Gradients g;
    g.dout = of(a.dout, kHeads);
    return testing::wanted_of(request_, picks.facts(facts_), shape_, t, g);
  }

  // The loss out . dout in fp64; the softmax runs over the keys that the
  // meaning gives each query.
  double loss(const Arrays& a, const RouteResult& picks) const {
    double sum = 0;
    for (int64_t h = 0; h < kHeads; ++h) {
      const int64_t kv = h / (kHeads / kKvHeads);
      for (int64_t q = 0; q < kTokens; ++q) {
        std::vector<int64_t> keys;
        for (int64_t t = 0; t <= q; ++t) {
          if (ids_[static_cast<size_t>(t)] == ids_[static_cast<size_t>(q)] &&
              sees(picks, kv, q, static_cast<int32_t>(t / 8))) {
            keys.push_back(t);
          }
        }
        std::vector<double> weight;
        double total = 0;
        for (const int64_t t : keys) {
          double dot = 0;
          for (int64_t d = 0; d < kDim; ++d) {
            dot += at(a.q, h, q, d) * at(a.k, kv, t, d);
          }
          weight.push_back(std::exp(dot / std::sqrt(double{kDim})));
          total += weight.back();
        }
        for (size_t i = 0; i < keys.size(); ++i) {
          for (int64_t d = 0; d < kDim; ++d) {
            sum += weight[i] / total * at(a.v, kv, keys[i], d) *
                   at(a.dout, h, q, d);
          }
        }
      }
    }
    return sum;
  }

  // Whether a query sees a block, by the definitions: it is among its own
  // picks, or among those of any query of its tile.
  bool sees(const RouteResult& r, int64_t head, int64_t q,
            int32_t block) const {
    const bool own = GetParam() == RouteMeaning::exact;
    const int64_t begin = own ? q : q / 16 * 16;
    const int64_t end = own ? q + 1 : std::min(kTokens, begin + 16);
    const auto first = r.picks.begin() + head * kTokens * r.k;
    return std::find(first + begin * r.k, first + end * r.k, block) !=
           first + end * r.k;
  }

  static double at(const std::vector<float>& x, int64_t h, int64_t t,
                   int64_t d) {
    return static_cast<double>(
        x[static_cast<size_t>((h * kTokens + t) * kDim + d)]);
  }

  std::vector<int32_t> ids_;
  Request request_;
  Facts facts_;
  RouteSettings settings_;
  AttentionShape shape_;
};
INSTANTIATE_TEST_SUITE_P(Each, RouteAttention,
                         ::testing::Values(RouteMeaning::exact,
                                           RouteMeaning::tile_union),
                         [](const auto& each) {
                           return std::string(to_string(each.param));
                         });

TEST_P(RouteAttention, GradientsAreFiniteDifferencesWithPicksHeldFixed) {
  Arrays a;
  const RouteResult picks = routed(a);
  const Gradients g = attend(a, picks);
  double sum = 0;
  for (size_t i = 0; i < g.out.size(); ++i) {
    sum += static_cast<double>(g.out[i]) * static_cast<double>(a.dout[i]);
  }
  const testing::Wanted want = wanted(a, picks);
  double allowed = 0;  // the sum of the bounds of all outputs
  for (size_t i = 0; i < g.out.size(); ++i) {
    const double rounded = want.out[i].error + kUnit * std::abs(g.out[i]);
    allowed += rounded * static_cast<double>(std::abs(a.dout[i]));
  }
  EXPECT_NEAR(sum, loss(a, picks), allowed);
  struct Input {
    std::vector<float>& values;
    const std::vector<float>& gradient;
    const std::vector<reference::Expected>& want;
  };
  const Input inputs[] = {
      {a.q, g.dq, want.dq}, {a.k, g.dk, want.dk}, {a.v, g.dv, want.dv}};
  for (const Input& in : inputs) {
    for (size_t i = 5; i < in.values.size(); i += 211) {
      const float before = in.values[i];
      const auto difference = [&](float step) {
        const float high = before + step, low = before - step;
        in.values[i] = high;
        const double above = loss(a, picks);
        in.values[i] = low;
        const double below = loss(a, picks);
        in.values[i] = before;
        return (above - below) / (double{high} - double{low});
      };
      // The change at twice the step bounds the error of a central difference.
      const double near = difference(0x1p-9F), far = difference(0x1p-8F);
      const double gradient = in.gradient[i];
      const double bound =
          std::abs(far - near) + in.want[i].error + kUnit * std::abs(gradient);
      EXPECT_NEAR(gradient, near, bound) << "number " << i;
      EXPECT_LT(bound, 0x1p-8) << "number " << i;  // the bound is small
    }
  }
}

// The router reads other arrays than attention. While the picks stay the same,
// the router's inputs have no gradient; if the inputs change attention, they do
// so by the picks alone.
TEST_P(RouteAttention, RouterInputsReachAttentionByPicksAlone) {
  const Arrays a;
  const RouteResult picks = routed(a);
  const Gradients g = attend(a, picks);
  Arrays nudged;  // too little to change the order of scores
  for (float& x : nudged.q) x *= 1.0F + 0x1p-20F;
  const RouteResult same = routed(nudged);
  ASSERT_EQ(same.picks, picks.picks);
  EXPECT_TRUE(attend(a, same) == g);
  Arrays other;
  for (float& x : other.q) x = -x;
  const RouteResult changed = routed(other);
  ASSERT_NE(changed.picks, picks.picks);
  EXPECT_FALSE(attend(a, changed) == g);
  const Facts facts = changed.facts(facts_);
  auto plan = plan::make_plan(request_, facts);
  ASSERT_TRUE(plan) << plan.error().message;
  EXPECT_EQ(plan->legal_pairs.size(), 2U);  // a list for each KV head
}

}  // namespace
}  // namespace tessera
