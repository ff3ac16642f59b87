// model/slots_test.cc: for each slot, the gradients that it writes against
// finite differences of its forward pass, in float64.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "base/text.h"
#include "model/layer.h"
#include "tests/model_case.h"
#include "tests/random_case.h"

namespace tessera::model {
namespace {

// A slot's program: the weighted sum of its outputs, the sum of the absolute
// terms, and the gradients of inputs and parameters.
struct SlotProgram {
  std::vector<xla::Argument> moved;  // inputs, then parameters
  std::vector<xla::Argument> weights, integers;
  std::string text;
};

class Slots : public ModelCase {
 protected:
  LayerPtr layer_of(Slot slot) {
    auto layer = make_layer(s_.spec, slot, {s_.model, s_.places.at(0), {}});
    EXPECT_TRUE(layer) << layer.error().message;
    return layer ? std::move(*layer) : nullptr;
  }

  SlotProgram program_of(const Layer& layer, Slot slot,
                         const std::vector<Dims>& inputs) {
    SlotProgram out;
    for (const Dims& dims : inputs) {
      out.moved.push_back(
          {fmt::format("input{}", out.moved.size()), {Element::f64, dims}});
    }
    for (const ModelParameter& p : layer.parameters()) {
      out.moved.push_back({p.name, {Element::f64, p.shape}});
    }
    if (slot == Slot::attention) out.integers = integers_of(s_.places[0]);
    std::vector<xla::Argument> all = out.moved;
    all.insert(all.end(), out.integers.begin(), out.integers.end());
    {
      Writer sketch(all, Element::f64);  // shows the outputs
      for (const Value& v : differentiable(write_forward(layer, sketch, out))) {
        out.weights.push_back({fmt::format("out{}", out.weights.size()),
                               {Element::f64, v.dims()}});
      }
    }
    all.insert(all.end(), out.weights.begin(), out.weights.end());
    Writer w(all, Element::f64);
    const Passed passed = write_forward(layer, w, out);
    const Values given = differentiable(passed);
    const Values weights = named(w, out.weights);
    Value sum, size;
    for (size_t i = 0; i < given.size(); ++i) {
      Dims over(given[i].dims().size());
      std::iota(over.begin(), over.end(), 0);
      const Value terms = w.mul(given[i], weights[i]);
      const Value sizes = w.max(terms, w.negate(terms));
      const Value own = w.reduce_sum(terms, over);
      const Value own_size = w.reduce_sum(sizes, over);
      sum = i == 0 ? own : w.add(sum, own);
      size = i == 0 ? own_size : w.add(size, own_size);
    }
    const Returned back = layer.backward({w, Element::f64}, parameters(w, out),
                                         passed.saved, weights);
    Values results = {sum, size};
    results.insert(results.end(), back.inputs.begin(), back.inputs.end());
    results.insert(results.end(), back.parameters.begin(),
                   back.parameters.end());
    EXPECT_EQ(results.size(), 2 + out.moved.size());
    out.text = w.module("slot", results);
    return out;
  }

  std::vector<Numbers> run_slot(const SlotProgram& p,
                                const pjrt::Loaded& program,
                                const std::vector<Numbers>& moved,
                                const std::vector<Numbers>& weights) {
    std::vector<pjrt::HostArray> arrays;
    for (size_t i = 0; i < moved.size(); ++i) {
      arrays.push_back(
          {{Dtype::f64, p.moved[i].type.dims}, moved[i].data(), nullptr});
    }
    for (const xla::Argument& a : p.integers) {
      arrays.push_back(
          {{Dtype::i32, a.type.dims}, integers_.at(a.name).data(), nullptr});
    }
    for (size_t i = 0; i < weights.size(); ++i) {
      arrays.push_back(
          {{Dtype::f64, p.weights[i].type.dims}, weights[i].data(), nullptr});
    }
    double ms = 0;
    auto found = pjrt::send_and_execute(program, arrays, ms, ms);
    EXPECT_TRUE(found) << found.error().message;
    std::vector<Numbers> out;
    if (!found) return out;
    for (const pjrt::Buffer& b : *found) {
      out.emplace_back(xla::Type{Element::f64, b.type().dims}.elements());
      EXPECT_TRUE(pjrt::to_host(b, out.back().data(), 8 * out.back().size()));
    }
    return out;
  }

  // The error of a central difference is estimated from one of twice the step,
  // and from the rounding of a sum.
  void check(std::mt19937& random, Slot slot, const std::vector<Dims>& inputs) {
    const LayerPtr layer = layer_of(slot);
    ASSERT_TRUE(layer);
    const SlotProgram p = program_of(*layer, slot, inputs);
    auto program = pjrt::compile(*place_.client, *place_.device, p.text);
    ASSERT_TRUE(program) << program.error().message << p.text;
    std::normal_distribution<double> normal;
    const auto draw = [&](const std::vector<xla::Argument>& of) {
      std::vector<Numbers> out;
      for (const xla::Argument& a : of) {
        out.emplace_back(a.type.elements());
        for (double& v : out.back()) v = 0.7 * normal(random);
      }
      return out;
    };
    const std::vector<Numbers> at = draw(p.moved), weights = draw(p.weights);
    const std::vector<Numbers> got = run_slot(p, *program, at, weights);
    ASSERT_EQ(got.size(), at.size() + 2);
    for (size_t i = 0; i < at.size(); ++i) {
      ASSERT_EQ(got[i + 2].size(), at[i].size()) << p.moved[i].name;
      const Growth seen = growth_along(
          [&](const std::vector<Numbers>& moved) {
            return run_slot(p, *program, moved, weights)[0][0];
          },
          at, i, got[i + 2], [&] { return normal(random); });
      // Sums of sums: a few roundings of the sizes of their terms.
      const double bound = seen.apart + 64 * 2.3e-16 * got[1][0] / kGrowthStep;
      EXPECT_NEAR(seen.slope, seen.due, bound) << p.moved[i].name;
      EXPECT_GT(std::abs(seen.due), 4 * bound)
          << p.moved[i].name << ": the test sees nothing";
    }
  }

 private:
  static Values named(const Writer& w, const std::vector<xla::Argument>& of) {
    Values out;
    for (const xla::Argument& a : of) out.push_back(w.argument(a.name));
    return out;
  }
  static Values parameters(const Writer& w, const SlotProgram& p) {
    Values all = named(w, p.moved), out;
    for (size_t i = 0; i < all.size(); ++i) {
      if (!p.moved[i].name.starts_with("input")) out.push_back(all[i]);
    }
    return out;
  }
  static Passed write_forward(const Layer& layer, Writer& w,
                              const SlotProgram& p) {
    const Values own = parameters(w, p);
    Values inputs = named(w, p.moved);
    inputs.resize(inputs.size() - own.size());
    return layer.forward({w, Element::f64}, own, inputs);
  }
  // The outputs without attention's count of tiles.
  static Values differentiable(const Passed& passed) {
    Values out;
    for (const Value& v : passed.out) {
      if (v.type.element == Element::f64) out.push_back(v);
    }
    return out;
  }
};

TEST_F(Slots, GradientsAreThoseOfFiniteDifferences) {
  std::mt19937 random(5);
  const Row rows = joined_rows(
      {draw_row(random, 23, 40, {17, 9, 5}), draw_row(random, 23, 40, {40})});
  ModelConfig gemma = small_model(), gpt = small_model(), routed = gpt;
  gemma.mlp = MlpKind::geglu;
  gemma.softcap = 5;
  gemma.score_scale = 0.2;
  gemma.windows = {6, 0};
  gpt.norm = NormKind::layer;
  gpt.mlp = MlpKind::gelu;
  gpt.kv_heads = 1;
  routed.routes = {{3, 4, RouteRule::query_head}, {}};
  size_t number = 0;
  for (const auto& [what, of] :
       {std::pair("llama", small_model()), std::pair("gemma", gemma),
        std::pair("gpt", gpt), std::pair("routed", routed)}) {
    for (const std::string spec : {"xla", "reference", "tpu"}) {
      ModelConfig model = of;
      Tile tile = {16, 16};
      if (spec == "tpu") {  // what its kernels support
        if (!model.routes.empty()) continue;
        model.head_dim = 128;
        tile = {128, 128};
      }
      ASSERT_NO_FATAL_FAILURE(set(model, spec, rows, 2, tile));
      const int64_t n = s_.batch * s_.tokens, d = model.head_dim;
      const Dims wide = {n, model.width};
      const Dims q = {s_.batch, model.heads, s_.tokens, d};
      const Dims kv = {s_.batch, model.kv_heads, s_.tokens, d};
      const std::pair<Slot, std::vector<Dims>> slots[] = {
          {Slot::norm, {wide}},
          {Slot::linear_qkv, {wide}},
          {Slot::attention, {q, kv, kv}},
          {Slot::linear_proj, {{n, model.heads * d}}},
          {Slot::linear_fc1, {wide}},
          {Slot::linear_fc2, {{n, model.mlp_width}}},
          {Slot::layernorm_mlp, {wide}},
      };
      static_assert(std::size(slots) == kSlots);
      for (const auto& [slot, inputs] : slots) {
        if (!testing::takes_case(number++, 11 * kSlots)) continue;
        SCOPED_TRACE(fmt::format("{} {} {}", what, spec, to_string(slot)));
        check(random, slot, inputs);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::model
