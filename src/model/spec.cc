// model/spec.cc: the specs that are shipped, and the factories of their slots.
#include <algorithm>
#include <cmath>
#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "lanes/cpu/plugin_calls.h"
#include "model/layer.h"
#include "model/parameter_parts.h"
#include "model/step_plan.h"
#include "tessera/mosaic.h"

namespace tessera {
namespace {

constexpr std::string_view kSlotNames[] = {
    "norm",       "linear_qkv", "linear_proj",  "linear_fc1",
    "linear_fc2", "attention",  "layernorm_mlp"};

// Everything but attention is plain StableHLO, which the compiler fuses.
LayerSpec plain_spec(std::string name, std::string attention) {
  LayerSpec out;
  out.name = std::move(name);
  out.factories.fill("stablehlo");
  out.of(Slot::attention) = std::move(attention);
  return out;
}

std::vector<LayerSpec> shipped() {
  return {plain_spec("reference", "dense"), plain_spec("xla", "worklist"),
          plain_spec("cpu", "cpu"), plain_spec("tpu", "mosaic")};
}

// The factories that a slot may name.
std::vector<std::string> factories_of(Slot slot) {
  if (slot == Slot::attention) {
    return {"worklist", "dense", "mosaic", "cpu"};
  }
  return {"stablehlo"};
}

}  // namespace

std::string_view to_string(Slot slot) {
  return kSlotNames[static_cast<size_t>(slot)];
}

std::vector<std::string> layer_spec_names() {
  std::vector<std::string> out;
  for (const LayerSpec& spec : shipped()) out.push_back(spec.name);
  return out;
}

Result<LayerSpec> find_layer_spec(std::string_view name) {
  for (LayerSpec& spec : shipped()) {
    if (spec.name == name) return std::move(spec);
  }
  return invalid("model", "a spec must be one of {}, found {}",
                 fmt::join(layer_spec_names(), ", "), in_quotes(name));
}

std::string default_plugin(const LayerSpec& spec) {
  return model::has_kernels(spec) ? model::kTpuPlugin : cpu::kCallingPlugin;
}

SlotArrays slot_arrays(Slot slot, const ModelConfig& m) {
  const int64_t attended = m.heads * m.head_dim;
  const std::vector<int64_t> rows = {0, m.width};
  const std::vector<int64_t> q = {0, m.heads, 0, m.head_dim},
                             kv = {0, m.kv_heads, 0, m.head_dim};
  const int64_t parts = m.mlp == MlpKind::gelu ? 1 : 2;
  switch (slot) {
    case Slot::norm:
    case Slot::layernorm_mlp:
      break;
    case Slot::linear_qkv:
      return {{rows}, {{0, attended + 2 * m.kv_heads * m.head_dim}}};
    case Slot::linear_proj:
      return {{{0, attended}}, {rows}};
    case Slot::linear_fc1:
      return {{rows}, {{0, parts * m.mlp_width}}};
    case Slot::linear_fc2:
      return {{{0, m.mlp_width}}, {rows}};
    case Slot::attention:
      return {{q, kv, kv}, {q}};
  }
  return {{rows}, {rows}};
}

namespace model {
namespace {

// Deviations of start values. Sums over the inputs have a deviation near 1, and
// sums over the layers do not grow.
double deviation(int64_t from) {
  return 1 / std::sqrt(static_cast<double>(from));
}
double deviation(int64_t from, int64_t layers) {
  return deviation(from) / std::sqrt(2.0 * static_cast<double>(layers));
}

LayerPtr own_attention(const LayerSpec& spec, const Needs& needs) {
  if (has_kernels(spec)) return make_kernel_attention(needs.attention);
  const bool routed = needs.attention.route.top > 0;
  if (calls_cpu(spec)) {
    return routed ? make_routed_cpu_attention(needs.attention)
                  : make_cpu_attention(needs.attention);
  }
  const XlaMethod method =
      is_dense(spec) ? XlaMethod::dense : XlaMethod::worklist;
  return routed ? make_routed_attention(needs.attention, method)
                : make_attention(needs.attention, method);
}

// Outputs are divided by head, or by width in the MLP; q, k and v, and gate and
// up, are divided separately, so that a device has matching parts.
LayerPtr make_linear_slot(Slot slot, const ModelConfig& m) {
  const int64_t attended = m.heads * m.head_dim, kv = m.kv_heads * m.head_dim;
  std::vector<int64_t> to = {m.mlp_width};
  const std::string head{kHeadAxis};
  switch (slot) {
    case Slot::linear_qkv:
      return make_linear(m.width, attended + 2 * kv, deviation(m.width),
                         {head, ""}, {attended, kv, kv});
    case Slot::linear_proj:
      return make_linear(attended, m.width, deviation(attended, m.layers),
                         {"", head});
    case Slot::linear_fc1:
      if (m.mlp != MlpKind::gelu) to.push_back(m.mlp_width);
      return make_linear(m.width, m.mlp_width * static_cast<int64_t>(to.size()),
                         deviation(m.width), {head, ""}, to);
    case Slot::linear_fc2:
      return make_linear(m.mlp_width, m.width, deviation(m.mlp_width, m.layers),
                         {"", head});
    case Slot::norm:
    case Slot::attention:
    case Slot::layernorm_mlp:
      break;
  }
  return nullptr;
}

LayerPtr make_slot(const LayerSpec& spec, Slot slot, const Needs& needs) {
  switch (slot) {
    case Slot::norm:
      return make_norm(needs);
    case Slot::linear_qkv:
    case Slot::linear_proj:
    case Slot::linear_fc1:
    case Slot::linear_fc2: {
      LayerPtr own = make_linear_slot(slot, needs.model);
      if (needs.partners.empty()) return own;
      return make_shared_linear(needs.partners, std::move(own));
    }
    case Slot::attention:
      if (needs.attention.frame) {
        return has_kernels(spec) ? make_exchanged_kernels(needs.attention)
                                 : make_exchanged_attention(needs.attention);
      }
      return needs.attention.sharers.empty()
                 ? own_attention(spec, needs)
                 : make_shared_attention(needs.attention,
                                         own_attention(spec, needs));
    case Slot::layernorm_mlp:
      return make_layernorm_mlp(needs, make_slot(spec, Slot::norm, needs),
                                make_slot(spec, Slot::linear_fc1, needs),
                                make_slot(spec, Slot::linear_fc2, needs));
  }
  return nullptr;
}

}  // namespace

bool has_kernels(const LayerSpec& spec) {
  return spec.of(Slot::attention) == "mosaic";
}

Tile default_tile(const LayerSpec& spec) {
  return has_kernels(spec) ? kMosaicBackwardTile : Tile{256, 256};
}

bool is_dense(const LayerSpec& spec) {
  return spec.of(Slot::attention) == "dense";
}

bool calls_cpu(const LayerSpec& spec) {
  return spec.of(Slot::attention) == "cpu";
}

Result<void> check_spec(const LayerSpec& spec) {
  for (size_t i = 0; i < kSlots; ++i) {
    const auto slot = static_cast<Slot>(i);
    const std::string& factory = spec.of(slot);
    const std::vector<std::string> known = factories_of(slot);
    if (factory.empty()) {
      return invalid("model", "a spec must fill every slot, found none for {}",
                     to_string(slot));
    }
    if (std::find(known.begin(), known.end(), factory) == known.end()) {
      return invalid("model", "a factory of {} must be one of {}, found {}",
                     to_string(slot), fmt::join(known, ", "),
                     in_quotes(factory));
    }
  }
  return {};
}

Result<LayerPtr> make_layer(const LayerSpec& spec, Slot slot,
                            const Needs& needs) {
  if (auto e = check_spec(spec); !e) return e.error();
  return make_slot(spec, slot, needs);
}

}  // namespace model
}  // namespace tessera
