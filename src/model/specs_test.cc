// model/specs_test.cc: specs are one model. They write the same program for all
// slots but attention; attention of each is within the judge's bounds of fp64
// (lanes/reference/bound.cc), so two differ at most by the sum of the bounds.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "lanes/cpu/ffi_handlers.h"
#include "lanes/cpu/plugin_calls.h"
#include "model/layer.h"
#include "tests/attention_case.h"
#include "tests/model_case.h"
#include "tests/random_case.h"

namespace tessera::model {
namespace {

using Floats = std::vector<float>;

constexpr const char* kArrays[] = {"out", "dq", "dk", "dv"};

class LayerSpecs : public ModelCase {
 protected:
  LayerSpecs() : ModelCase(cpu::kCallingPlugin) {}

  void SetUp() override {
    ModelCase::SetUp();
    if (IsSkipped()) return;
    calls_cpu_ = cpu::ffi_handlers().ok();
    if (!calls_cpu_) return;
    auto ok = cpu::add_handlers(place_);
    ASSERT_TRUE(ok) << ok.error().message;
  }

  Row draw_rows(std::mt19937& random) const {
    return joined_rows({draw_row(random, 23, kTokens, {17, 9, 5}),
                        draw_row(random, 23, kTokens, {kTokens})});
  }

  LayerPtr layer_of(Slot slot) {
    AttentionPlace place = s_.places.at(0);
    if (place.kernels) place.kernels->element = Element::f32;
    auto layer = make_layer(s_.spec, slot, {s_.model, place, {}});
    EXPECT_TRUE(layer) << layer.error().message;
    return layer ? std::move(*layer) : nullptr;
  }

  // Forward and backward, for a slot whose arrays are rows.
  std::string text_of(Slot slot, Element products) {
    const LayerPtr layer = layer_of(slot);
    if (!layer) return {};
    const SlotArrays arrays = slot_arrays(slot, s_.model);
    std::vector<xla::Argument> all;
    const auto add = [&](const std::string& name, Dims dims) {
      if (dims[0] == 0) dims[0] = s_.batch * s_.tokens;
      all.push_back({name, {Element::f32, std::move(dims)}});
    };
    for (const Dims& dims : arrays.inputs) add("input", dims);
    for (const Dims& dims : arrays.outputs) add("gradient", dims);
    for (const ModelParameter& p : layer->parameters()) add(p.name, p.shape);
    Writer w(all, Element::f32);
    Values parameters;
    for (const ModelParameter& p : layer->parameters()) {
      parameters.push_back(w.argument(p.name));
    }
    const Site site = {w, products};
    const Passed passed =
        layer->forward(site, parameters, {w.argument("input")});
    const Returned back = layer->backward(site, parameters, passed.saved,
                                          {w.argument("gradient")});
    Values results = passed.out;
    append(results, back.inputs);
    append(results, back.parameters);
    return w.module("slot", results);
  }

  // q, k, v and the output's gradient, [batch, heads, tokens, head_dim].
  std::vector<Floats> draw_arrays(std::mt19937& random) const {
    std::normal_distribution<float> normal;
    std::vector<Floats> out;
    for (const Dims& dims : dims_of_arrays()) {
      out.emplace_back(xla::Type{Element::f32, dims}.elements());
      for (float& v : out.back()) v = 0.7F * normal(random);
    }
    return out;
  }
  std::vector<Dims> dims_of_arrays() const {
    const ModelConfig& m = s_.model;
    const Dims q = {s_.batch, m.heads, s_.tokens, m.head_dim};
    const Dims kv = {s_.batch, m.kv_heads, s_.tokens, m.head_dim};
    return {q, kv, kv, q};
  }

  // The slot's output, and the gradients of q, k and v, all in float32.
  std::vector<Floats> attend(const std::vector<Floats>& given) {
    std::vector<Floats> out;
    const LayerPtr layer = layer_of(Slot::attention);
    if (!layer) return out;
    std::vector<xla::Argument> all;
    for (const Dims& dims : dims_of_arrays()) {
      all.push_back({fmt::format("input{}", all.size()), {Element::f32, dims}});
    }
    const std::vector<xla::Argument> integers = integers_of(s_.places[0]);
    all.insert(all.end(), integers.begin(), integers.end());
    Writer w(all, Element::f32);
    Values inputs;
    for (size_t i = 0; i < given.size(); ++i) {
      inputs.push_back(w.argument(all[i].name));
    }
    const Value gradient = inputs.back();
    inputs.pop_back();
    const Site site = {w, Element::f32};
    const Passed passed = layer->forward(site, {}, inputs);
    const Returned back = layer->backward(site, {}, passed.saved, {gradient});
    Values results = {passed.out[0]};
    append(results, back.inputs);
    auto program = pjrt::compile(*place_.client, *place_.device,
                                 w.module("attention", results));
    EXPECT_TRUE(program) << program.error().message;
    if (!program) return out;
    std::vector<pjrt::HostArray> arrays;
    for (size_t i = 0; i < all.size(); ++i) {
      const bool is_real = i < given.size();
      const void* data = is_real ? static_cast<const void*>(given[i].data())
                                 : integers_.at(all[i].name).data();
      arrays.push_back({{is_real ? Dtype::f32 : Dtype::i32, all[i].type.dims},
                        data,
                        nullptr});
    }
    double ms = 0;
    auto made = pjrt::send_and_execute(*program, arrays, ms, ms);
    EXPECT_TRUE(made) << made.error().message;
    if (!made) return out;
    for (const pjrt::Buffer& b : *made) {
      out.emplace_back(xla::Type{Element::f32, b.type().dims}.elements());
      EXPECT_TRUE(pjrt::to_host(b, out.back().data(), 4 * out.back().size()));
    }
    return out;
  }

  // With the mask of that layer.
  testing::Wanted wanted(const Row& rows, size_t layer,
                         std::vector<Floats> given) const {
    const auto requests =
        *layer_requests(s_.model, s_.batch, s_.tokens, s_.tokens, {16, 16});
    const Ints32 counts(static_cast<size_t>(s_.batch),
                        static_cast<int32_t>(s_.tokens));
    Facts facts;
    facts.doc_ids = rows.doc_ids;
    facts.valid_token_counts = counts;
    std::vector<Floats> made = given;  // the same sizes
    Floats lse(static_cast<size_t>(s_.batch * s_.model.heads * s_.tokens));
    const auto view = [&](std::vector<Floats>& of, size_t i) {
      const Dims d = dims_of_arrays()[i];
      return MutableTensorView::bhsd(of[i].data(), Dtype::f32, d[0], d[1], d[2],
                                     d[3]);
    };
    ForwardTensors f;
    f.q = as_input(view(given, 0));
    f.k = as_input(view(given, 1));
    f.v = as_input(view(given, 2));
    f.out = view(made, 3);
    f.lse = lse;
    Gradients g;
    g.dout = as_input(view(given, 3));
    g.dq = view(made, 0);
    g.dk = view(made, 1);
    g.dv = view(made, 2);
    const AttentionShape shape = attention_call(s_.model, Dtype::f32).shape;
    return testing::wanted_of(requests.at(layer), facts, shape, f, g, true);
  }

  static std::vector<std::optional<std::string>> faults(
      const testing::Wanted& want, const std::vector<Floats>& got) {
    const std::vector<reference::Expected>* of[] = {&want.out, &want.dq,
                                                    &want.dk, &want.dv};
    std::vector<std::optional<std::string>> out;
    for (size_t i = 0; i < std::size(kArrays); ++i) {
      out.push_back(testing::values_fault(kArrays[i], *of[i], got.at(i)));
    }
    return out;
  }

  static constexpr int kTokens = 40;
  bool calls_cpu_ = false;
};

TEST_F(LayerSpecs, WriteTheSameSlotsButForAttention) {
  std::mt19937 random(6);
  const Row rows = draw_rows(random);
  ModelConfig model = small_model(), older = model;
  model.head_dim = older.head_dim = 128;
  older.norm = NormKind::layer;
  older.mlp = MlpKind::gelu;
  for (const ModelConfig& m : {model, older}) {
    for (size_t i = 0; i < kSlots; ++i) {
      const auto slot = static_cast<Slot>(i);
      if (slot == Slot::attention) continue;
      for (const Element products : {Element::f32, Element::bf16}) {
        std::string first;
        for (const std::string spec : {"xla", "reference", "cpu", "tpu"}) {
          SCOPED_TRACE(fmt::format("{} {}", spec, to_string(slot)));
          ASSERT_NO_FATAL_FAILURE(set(m, spec, rows, 2, {128, 128}));
          const std::string text = text_of(slot, products);
          EXPECT_FALSE(text.empty());
          if (first.empty()) first = text;
          EXPECT_EQ(text, first);
        }
      }
    }
  }
}

// Errors beyond the bounds are detected: another layer's mask in every array,
// and one changed number of an operand.
TEST_F(LayerSpecs, HaveAttentionWithinTheBoundsOfFp64) {
  std::mt19937 random(7);
  const Row rows = draw_rows(random);
  ModelConfig plain = small_model(), gemma = plain;
  plain.windows = gemma.windows = {6, 0};
  gemma.softcap = 5;
  gemma.score_scale = 0.2;
  size_t number = 0;
  for (const ModelConfig& of : {plain, gemma}) {
    for (const std::string spec : {"xla", "reference", "cpu", "tpu"}) {
      if (!testing::takes_case(number++, 8)) continue;
      SCOPED_TRACE(spec);
      if (spec == "cpu" && !calls_cpu_) continue;
      ModelConfig model = of;
      const bool is_tpu = spec == "tpu";
      if (is_tpu) model.head_dim = 128;
      attention_ = Element::f32;
      const int64_t tile = is_tpu ? 128 : 16;
      ASSERT_NO_FATAL_FAILURE(set(model, spec, rows, 2, {tile, tile}));
      const std::vector<Floats> given = draw_arrays(random);
      const std::vector<Floats> got = attend(given);
      ASSERT_EQ(got.size(), std::size(kArrays));
      for (const auto& fault : faults(wanted(rows, 0, given), got)) {
        EXPECT_EQ(fault, std::nullopt);
      }
      for (const auto& fault : faults(wanted(rows, 1, given), got)) {
        EXPECT_NE(fault, std::nullopt);
      }
      for (size_t i = 0; i < given.size(); ++i) {
        std::vector<Floats> moved = given;
        // In the sixth token of head 0, whose document has tokens before it.
        moved[i][static_cast<size_t>(5 * model.head_dim)] += 0.1F;
        size_t seen = 0;
        for (const auto& fault : faults(wanted(rows, 0, moved), got)) {
          seen += fault.has_value();
        }
        EXPECT_GT(seen, 0U) << "operand " << i;
      }
    }
  }
}

}  // namespace
}  // namespace tessera::model
