// model/work_test.cc: the work that slots report, against the types in their
// programs' text and against counts made by hand.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "model/block.h"
#include "model/step_plan.h"
#include "tests/lowering.h"
#include "tests/stablehlo_types.h"

namespace tessera::model {
namespace {

using testing::Counted;
using testing::types_of;

int64_t bytes_of(const std::vector<Counted>& all, size_t begin, size_t end) {
  int64_t out = 0;
  for (size_t i = begin; i < end; ++i) out += all[i].bytes;
  return out;
}

// Whether any line reads the result of this line, "%12 = ..".
bool is_read(const std::string& text, size_t line) {
  const size_t begin = text.find('%', line), end = text.find(' ', begin);
  const std::string name = text.substr(begin, end - begin);
  for (size_t at = end; (at = text.find(name, at)) != std::string::npos; ++at) {
    if (std::isdigit(text[at + name.size()]) == 0) return true;
  }
  return false;
}

// For a product without batch dimensions of n x k and m x k numbers. A compiler
// leaves out results that are not read.
double flops_in(const std::string& text) {
  double out = 0;
  for (size_t at = 0; (at = text.find("dot_general", at)) != std::string::npos;
       at += 5) {
    if (!is_read(text, text.rfind('\n', at) + 1)) continue;
    const auto t = types_of(text.substr(at, text.find('\n', at) - at));
    EXPECT_EQ(t.size(), 3U);
    out += 2 * std::sqrt(t[0].elements * t[1].elements * t[2].elements);
  }
  return out;
}

// Sizes that a slot leaves open become those of two rows of 40 tokens.
Dims with_sizes(const Dims& declared) {
  if (declared.size() == 2) return {80, declared[1]};
  return {2, declared[1], 40, declared[3]};
}

// The types of a program's arguments and results.
struct Ends {
  std::vector<Counted> in, out;
};
Ends ends_of(const std::string& text) {
  const size_t start = text.find("@main(");
  EXPECT_NE(start, std::string::npos) << text;
  const std::string line = text.substr(start, text.find('\n', start) - start);
  const size_t arrow = line.find("->");
  return {types_of(line.substr(0, arrow)), types_of(line.substr(arrow))};
}

// A slot's backward pass as a program, from its inputs and saved values.
void read_back(const StepShape& s, const Layer& layer, const Passed& passed,
               const Values& inputs, SlotWork& found) {
  std::vector<xla::Argument> arguments;
  const auto add = [&](const std::string& name, const xla::Type& type) {
    arguments.push_back({name + std::to_string(arguments.size()), type});
  };
  for (const ModelParameter& p : layer.parameters()) {
    add("p", {s.wide, p.shape});
  }
  const size_t learned = arguments.size();
  for (const Value& v : passed.saved) add("s", v.type);
  const size_t kept = arguments.size();
  for (const Value& v : passed.out) {
    if (v.type.element == s.wide) add("g", v.type);
  }
  const size_t read = arguments.size();
  if (found.slot == to_string(Slot::attention)) {
    for (const xla::Argument& a : integers_of(s.places.front())) {
      arguments.push_back(a);
    }
  }
  Writer w(arguments, s.wide);
  Values parameters, saved, gradients;
  for (size_t i = 0; i < read; ++i) {
    Values& to = i < learned ? parameters : i < kept ? saved : gradients;
    to.push_back(w.argument(arguments[i].name));
  }
  const Returned back =
      layer.backward({w, s.products}, parameters, saved, gradients);
  ASSERT_EQ(back.inputs.size(), inputs.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_EQ(back.inputs[i].dims(), inputs[i].dims());
  }
  Values results = back.inputs;
  results.insert(results.end(), back.parameters.begin(), back.parameters.end());
  const std::string text = w.module("back", results);
  const Ends ends = ends_of(text);
  ASSERT_EQ(ends.in.size(), arguments.size());
  ASSERT_EQ(ends.out.size(), results.size());
  found.bytes.read_back = bytes_of(ends.in, 0, read);
  found.bytes.written_back = bytes_of(ends.out, 0, ends.out.size());
  if (found.flops) found.flops_back = flops_in(text);
}

// A slot's forward pass as a program of its own.
SlotWork read_slot(const StepShape& s, Slot slot,
                   const std::vector<Dims>& shapes) {
  const AttentionPlace& place = s.places.front();
  const LayerPtr layer = *make_layer(s.spec, slot, {s.model, place});
  std::vector<xla::Argument> arguments;
  for (size_t i = 0; i < shapes.size(); ++i) {
    arguments.push_back({"x" + std::to_string(i), {s.wide, shapes[i]}});
  }
  for (const ModelParameter& p : layer->parameters()) {
    arguments.push_back({p.name, {s.wide, p.shape}});
  }
  const size_t learned = arguments.size();
  if (slot == Slot::attention) {
    for (const xla::Argument& a : integers_of(place)) arguments.push_back(a);
  }
  Writer w(arguments, s.wide);
  Values inputs, parameters;
  for (size_t i = 0; i < learned; ++i) {
    (i < shapes.size() ? inputs : parameters)
        .push_back(w.argument(arguments[i].name));
  }
  const Passed passed = layer->forward({w, s.products}, parameters, inputs);
  Values results = passed.out;
  results.insert(results.end(), passed.saved.begin(), passed.saved.end());
  const std::string text = w.module("slot", results);

  const auto [in, out] = ends_of(text);
  EXPECT_EQ(in.size(), arguments.size());
  EXPECT_EQ(out.size(), results.size());
  SlotWork found;
  found.slot = std::string(to_string(slot));
  found.bytes = {
      bytes_of(in, 0, shapes.size()) + bytes_of(in, learned, in.size()),
      bytes_of(in, shapes.size(), learned), bytes_of(out, 0, passed.out.size()),
      bytes_of(out, passed.out.size(), out.size())};
  if (slot != Slot::attention) found.flops = flops_in(text);
  const SlotArrays due = slot_arrays(slot, s.model);
  for (size_t i = 0; i < due.outputs.size(); ++i) {
    EXPECT_EQ(passed.out[i].dims(), with_sizes(due.outputs[i]));
    EXPECT_EQ(passed.out[i].type.element, s.wide);
  }
  read_back(s, *layer, passed, inputs, found);
  return found;
}

TrainOptions options_of(const char* spec, Dtype products) {
  TrainOptions o;
  o.model.vocab = 23;
  o.model.width = 24;
  o.model.layers = 1;
  o.model.head_dim = 8;
  o.model.mlp_width = 20;
  o.spec = *find_layer_spec(spec);
  o.precision.products = products;
  o.rows = 2;
  o.tokens = 40;
  o.tile = {16, 16};
  if (std::string(spec) == "tpu") {
    o.model.head_dim = 128;
    o.tile = {128, 128};
    o.xla.lowering_reason = testing::lowering_reason(o.tile);
  }
  return o;
}

const SlotWork& named(const std::vector<SlotWork>& all, std::string_view slot) {
  static const SlotWork none;
  const auto at = std::ranges::find(all, slot, &SlotWork::slot);
  EXPECT_NE(at, all.end()) << slot;
  return at == all.end() ? none : *at;
}

TEST(SlotWork, IsThatOfTheProgramsText) {
  for (const std::string& spec : layer_spec_names()) {
    for (const Dtype products : {Dtype::f32, Dtype::bf16}) {
      for (const bool fused : {true, false}) {
        SCOPED_TRACE(spec + (fused ? " fused" : " apart"));
        TrainOptions o = options_of(spec.c_str(), products);
        o.model.fused_mlp = fused;
        if (!fused) o.model.norm = NormKind::layer;
        const StepShape s = plan_step(o)->shape;
        const auto said = *model_work(o);
        const std::vector<Slot> slots =
            fused ? std::vector<Slot>{Slot::linear_qkv, Slot::attention,
                                      Slot::linear_proj, Slot::norm,
                                      Slot::layernorm_mlp}
                  : std::vector<Slot>{Slot::linear_qkv, Slot::attention,
                                      Slot::linear_proj, Slot::linear_fc1,
                                      Slot::linear_fc2};
        for (const Slot slot : slots) {
          SCOPED_TRACE(to_string(slot));
          std::vector<Dims> shapes;
          for (const Dims& dims : slot_arrays(slot, o.model).inputs) {
            shapes.push_back(with_sizes(dims));
          }
          const SlotWork want = read_slot(s, slot, shapes);
          const SlotWork& got = named(said, want.slot);
          EXPECT_EQ(got.bytes.inputs, want.bytes.inputs);
          EXPECT_EQ(got.bytes.parameters, want.bytes.parameters);
          EXPECT_EQ(got.bytes.outputs, want.bytes.outputs);
          EXPECT_EQ(got.bytes.kept, want.bytes.kept);
          EXPECT_EQ(got.bytes.read_back, want.bytes.read_back);
          EXPECT_EQ(got.bytes.written_back, want.bytes.written_back);
          if (slot != Slot::attention) {
            EXPECT_EQ(got.flops, want.flops);
            EXPECT_EQ(got.flops_back, want.flops_back);
          }
        }
      }
    }
  }
}

// 80 rows of 24 numbers, 64 of qkv, 32 of heads; all twice, for two layers.
TEST(SlotWork, IsWhatAHandCounts) {
  TrainOptions o = options_of("reference", Dtype::bf16);
  o.model.layers = 2;
  o.model.fused_mlp = false;
  const auto said = *model_work(o);
  std::vector<std::string> names;
  for (const SlotWork& each : said) names.push_back(each.slot);
  EXPECT_EQ(names, (std::vector<std::string>{"norm", "linear_qkv", "attention",
                                             "linear_proj", "linear_fc1",
                                             "activation", "linear_fc2"}));
  const SlotWork& qkv = named(said, "linear_qkv");
  EXPECT_EQ(qkv.flops, 2.0 * 2 * 80 * 24 * 64);
  EXPECT_EQ(qkv.flops_back, 2 * 2.0 * 2 * 80 * 24 * 64);
  EXPECT_EQ(qkv.bytes,
            (SlotBytes{2 * 80 * 24 * 4, 2 * 24 * 64 * 4, 2 * 80 * 64 * 4,
                       2 * 80 * 24 * 4, 2 * 4 * (80 * 64 + 24 * 64 + 80 * 24),
                       2 * 4 * (80 * 24 + 24 * 64)}));
  const SlotWork& norm = named(said, "norm");  // two in a layer
  EXPECT_EQ(norm.flops, 0.0);
  EXPECT_EQ(norm.flops_back, 0.0);
  EXPECT_EQ(norm.bytes,
            (SlotBytes{4 * 80 * 24 * 4, 4 * 24 * 4, 4 * 80 * 24 * 4,
                       4 * 2 * 80 * 24 * 4, 4 * 4 * (3 * 80 * 24 + 24),
                       4 * 4 * (80 * 24 + 24)}));
  EXPECT_EQ(named(said, "activation").bytes,
            (SlotBytes{2 * 80 * 40 * 4, 0, 2 * 80 * 20 * 4, 2 * 80 * 40 * 4,
                       2 * 80 * 60 * 4, 2 * 80 * 40 * 4}));
  // Rows of 40 tokens are padded to 3 tiles of 16, and every pair is computed.
  const SlotWork& attention = named(said, "attention");
  EXPECT_EQ(attention.flops, 2 * 4.0 * 2 * 4 * 48 * 48 * 8);
  EXPECT_EQ(attention.flops_back, 2.5 * *attention.flops);
  EXPECT_EQ(attention.bytes.written_back, 2 * 4 * 80 * 8 * (4 + 2 + 2));
  EXPECT_EQ(attention.bytes.outputs, 2 * 80 * 32 * 4);
  // q, out of 4 heads, k and v of 2, in bf16, and log-sum-exp.
  EXPECT_EQ(attention.bytes.kept,
            2 * 2 * 48 * (2 * (4 + 4 + 2 + 2) * 8 + 4 * 4));
  // Work that depends on the batch is not known.
  const auto listed = *model_work(options_of("xla", Dtype::f32));
  EXPECT_FALSE(named(listed, "attention").flops);
  EXPECT_FALSE(named(listed, "attention").flops_back);
}

// A fused MLP saves only its input, so it computes the product of fc1 again.
TEST(SlotWork, OfAFusedMlpTakesAProductMore) {
  const auto fused = *model_work(options_of("xla", Dtype::f32));
  TrainOptions o = options_of("xla", Dtype::f32);
  o.model.fused_mlp = false;
  const auto apart = *model_work(o);
  const SlotWork& fc1 = named(apart, "linear_fc1");
  const SlotWork& fc2 = named(apart, "linear_fc2");
  const SlotWork& mlp = named(fused, "layernorm_mlp");
  EXPECT_EQ(*mlp.flops, *fc1.flops + *fc2.flops);
  EXPECT_EQ(*mlp.flops_back, *fc1.flops + *fc1.flops_back + *fc2.flops_back);
}

// Rows along one axis, heads and the MLP's width along another.
TEST(SlotWork, IsADevicesPart) {
  TrainOptions o = options_of("xla", Dtype::f32);
  const auto one = *model_work(o);
  o.mesh = *parse_mesh("data=2,head=2");
  const auto part = *model_work(o);
  EXPECT_EQ(*named(one, "linear_qkv").flops,
            4 * *named(part, "linear_qkv").flops);
  EXPECT_EQ(*named(one, "layernorm_mlp").flops,
            4 * *named(part, "layernorm_mlp").flops);
  EXPECT_EQ(named(one, "linear_qkv").bytes.inputs,
            2 * named(part, "linear_qkv").bytes.inputs);
  EXPECT_EQ(named(one, "linear_qkv").bytes.parameters,
            2 * named(part, "linear_qkv").bytes.parameters);
  EXPECT_EQ(named(one, "norm").bytes.parameters,
            named(part, "norm").bytes.parameters);
  o.mesh = *parse_mesh("head=3");
  EXPECT_FALSE(model_work(o));
}

}  // namespace
}  // namespace tessera::model
