// model/work.cc: counts flops and bytes of slots: writes a block's forward pass
// and reads the sizes of its arrays.
#include <algorithm>
#include <utility>

#include "model/block.h"
#include "model/mesh.h"
#include "model/step_plan.h"

namespace tessera {
namespace model {
namespace {

std::string_view slot_of(Part part) {
  const bool norm = part == Part::norm1 || part == Part::norm2 ||
                    part == Part::post_norm1 || part == Part::post_norm2;
  return norm ? to_string(Slot::norm) : to_string(part);
}

int64_t integer_bytes(const AttentionPlace& place) {
  int64_t out = 0;
  for (const xla::Argument& a : integers_of(place)) {
    out += 4 * a.type.elements();
  }
  return out;
}

void add(const BlockPass& pass, const Block& block, int64_t rows,
         int64_t integers, std::vector<SlotWork>& all) {
  for (size_t i = 0; i < kParts; ++i) {
    const SlotBytes& more = pass.bytes[i];
    if (more == SlotBytes{}) continue;  // the block has no such part
    const auto part = static_cast<Part>(i);
    auto at = std::ranges::find(all, slot_of(part), &SlotWork::slot);
    if (at == all.end()) {
      at = all.insert(at, {std::string(slot_of(part)), 0, 0, {}});
    }
    const auto flops = block.flops(part, rows);
    if (!flops) {
      at->flops.reset();
      at->flops_back.reset();
    }
    if (at->flops) {
      *at->flops += flops->forward;
      *at->flops_back += flops->back;
    }
    at->bytes.inputs += more.inputs;
    at->bytes.parameters += more.parameters;
    at->bytes.outputs += more.outputs;
    at->bytes.kept += more.kept;
    at->bytes.read_back += more.outputs + more.parameters + more.kept;
    at->bytes.written_back += more.inputs + more.parameters;
    // Integers have no gradient, so only the forward pass reads them.
    if (part == Part::attention) at->bytes.inputs += integers;
  }
}

// Writes the forward pass of one layer, without compiling it. Arrays of the
// backward pass have the same types.
Result<void> add_layer(const StepShape& s, const AttentionPlace& place,
                       std::vector<SlotWork>& all) {
  const ModelConfig own = own_model(s.model, s.mesh);
  auto block = Block::make(s.spec, {own, place, partners_of(s.mesh)});
  if (!block) return block.error();
  const Dims angles = {s.batch, s.tokens, own.head_dim / 2};
  const int64_t rows = s.batch * s.tokens;
  std::vector<xla::Argument> arguments = {{"x", {s.wide, {rows, own.width}}},
                                          {"cos", {s.wide, angles}},
                                          {"sin", {s.wide, angles}}};
  const std::vector<ModelParameter> parameters = block->parameters();
  for (const ModelParameter& p : parameters) {
    arguments.push_back({p.name, {s.wide, p.shape}});
  }
  std::ranges::move(integers_of(place), std::back_inserter(arguments));
  Writer w(std::move(arguments), s.wide);
  Values given;
  for (const ModelParameter& p : parameters) {
    given.push_back(w.argument(p.name));
  }
  const Stream stream = {s.batch, s.tokens, w.argument("cos"),
                         w.argument("sin")};
  const BlockPass pass =
      block->forward({w, s.products}, stream, given, w.argument("x"));
  add(pass, *block, rows, integer_bytes(place), all);
  return {};
}

}  // namespace

Result<std::vector<SlotWork>> step_work(const StepShape& s) {
  std::vector<SlotWork> out;
  for (int64_t i = 0; i < s.model.layers; ++i) {
    if (auto e = add_layer(s, s.place_of(i), out); !e) return e.error();
  }
  return out;
}

}  // namespace model

Result<std::vector<SlotWork>> model_work(const TrainOptions& options) {
  auto planned = model::plan_step(options);
  if (!planned) return planned.error();
  return model::step_work(planned->shape);
}

}  // namespace tessera
