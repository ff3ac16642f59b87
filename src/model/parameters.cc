// model/parameters.cc: a model's parameters, in the order of its programs.
#include <cmath>
#include <utility>

#include "model/block.h"
#include "model/parameter_parts.h"

namespace tessera::model {
namespace {

constexpr const char* kEmbedding = "embedding.weight";
constexpr const char* kHead = "head.weight";

std::string layer_name(int64_t layer, const std::string& name) {
  return "layers." + std::to_string(layer) + "." + name;
}

}  // namespace
}  // namespace tessera::model

namespace tessera {

Result<std::vector<ModelParameter>> model_parameters(const ModelConfig& m,
                                                     const LayerSpec& spec) {
  using model::Block;
  if (auto e = check_model(m); !e) return e.error();
  auto block = Block::make(spec, {m});
  if (!block) return block.error();
  auto norm = model::make_layer(spec, Slot::norm, {m});
  if (!norm) return norm.error();
  std::vector<ModelParameter> out;
  const std::vector<std::string> by_ids = {std::string(model::kHeadAxis), ""};
  out.push_back({model::kEmbedding, {m.vocab, m.width}, 0, 0.02, by_ids});
  for (const auto& [name, size] : m.columns) {
    out.push_back(
        {"columns." + name + ".weight", {size, m.width}, 0, 0.02, {"", ""}});
  }
  for (int64_t i = 0; i < m.layers; ++i) {
    for (ModelParameter p : block->parameters()) {
      p.name = model::layer_name(i, p.name);
      out.push_back(std::move(p));
    }
  }
  for (ModelParameter p : (*norm)->parameters()) {
    p.name = "final_norm." + p.name;
    out.push_back(std::move(p));
  }
  if (!m.tied_head) {
    out.push_back({model::kHead,
                   {m.vocab, m.width},
                   0,
                   1 / std::sqrt(static_cast<double>(m.width)),
                   by_ids});
  }
  return out;
}

}  // namespace tessera
