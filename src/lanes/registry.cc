// lanes/registry.cc: the names and capabilities of all lanes.
#include <fmt/ranges.h>

#include <iterator>

#include "base/fail.h"
#include "base/text.h"
#include "lanes/mosaic/shape.h"
#include "lanes/reference/reference.h"
#include "lanes/tensors.h"
#include "tessera/dispatch.h"

namespace tessera {
namespace {

constexpr uint32_t bits(std::initializer_list<Atom> atoms) {
  uint32_t out = 0;
  for (const Atom a : atoms) out |= 1U << static_cast<unsigned>(a);
  return out;
}
constexpr uint32_t bits(std::initializer_list<Dtype> dtypes) {
  uint32_t out = 0;
  for (const Dtype d : dtypes) out |= 1U << static_cast<unsigned>(d);
  return out;
}

constexpr uint32_t kEveryAtom =
    bits({Atom::full, Atom::causal, Atom::window, Atom::chunk, Atom::prefix,
          Atom::documents, Atom::segments, Atom::sink, Atom::blocks,
          Atom::routed, Atom::tree, Atom::same});
constexpr uint32_t kFloats = bits({Dtype::f32, Dtype::bf16, Dtype::f16});

// In the order of LaneId. The lanes themselves check the same limits.
constexpr LaneFacts kRegistry[] = {
    {.lane = LaneId::cpu,
     .about = "our block-sparse kernels on this machine's cores",
     .atoms = kEveryAtom,
     .any_words = true,
     .dtypes = kFloats,
     .dim_step = lanes::kDimStep,
     .max_dim = lanes::kMaxDim,
     .backward = true,
     .softcap = true,
     .sink_logits = true,
     .masks_by_head = true,
     .sink_telemetry = true},
    {.lane = LaneId::xla,
     .about = "the compiler of a PJRT plugin, on any of its devices",
     .needs_plugin = true,
     .atoms = kEveryAtom,
     .any_words = true,
     .dtypes = kFloats,
     .dim_step = lanes::kDimStep,
     .max_dim = lanes::kMaxDim,
     .backward = true,
     .softcap = true,
     .sink_logits = true,
     .masks_by_head = true,
     .sink_telemetry = true,
     .meshes = true},
    {.lane = LaneId::mosaic,
     .about = "our TPU kernel, compiled and run by libtpu",
     .needs_plugin = true,
     .platform = "tpu",
     .known_chips = true,
     .atoms = kEveryAtom,
     .any_words = true,
     .dtypes = bits({Dtype::bf16, Dtype::f32}),
     .dim_step = mosaic::kDimStep,
     .max_dim = mosaic::kMaxDim,
     .tile_step = mosaic::kLanes,
     .max_tile = mosaic::kMaxTileSide,
     .min_scale = mosaic::kMinScale,
     .max_scale = mosaic::kMaxScale,
     .backward = true,
     .softcap = true,
     .sink_logits = true,
     .masks_by_head = true,
     .sink_telemetry = true,
     .meshes = true},
    {.lane = LaneId::jax_bridge,
     .about = "attention that JAX exported, by a PJRT plugin",
     .needs_plugin = true,
     .atoms = kEveryAtom,
     .any_words = true,
     .dtypes = kFloats,
     .dim_step = 1,
     .max_dim = kMaxHeadDim,
     .softcap = true,
     .sink_logits = true,
     .automatic = false,
     .same_meaning = false},
    {.lane = LaneId::splash,
     .about = "JAX's Splash kernel as it exported it, under our MaskInfo",
     .needs_plugin = true,
     .atoms = kEveryAtom,
     .any_words = true,
     .dtypes = kFloats,
     .dim_step = 1,
     .max_dim = kMaxHeadDim,
     .softcap = true,
     .masks_by_head = true,
     .automatic = false,
     .same_meaning = false},
    {.lane = LaneId::cuda,
     .about = "our kernels on a CUDA device",
     .absent = "this version has no cuda lane",
     .needs_plugin = true,
     .platform = "cuda"},
    {.lane = LaneId::reference,
     .about = "dense attention in fp64: the oracle",
     .atoms = kEveryAtom,
     .any_words = true,
     .dtypes = kFloats,
     .dim_step = 1,
     .max_dim = kMaxHeadDim,
     .backward = true,
     .softcap = true,
     .sink_logits = true,
     .masks_by_head = true,
     .sink_telemetry = true,
     .max_pairs = reference::kMaxReferencePairs,
     .automatic = false},
};

constexpr std::string_view kNames[] = {
    "cpu", "xla", "mosaic", "jax_bridge", "splash", "cuda", "reference"};
constexpr std::string_view kClasses[] = {"sparse blocks", "custom",
                                         "plain causal", "other"};
constexpr std::string_view kVerdicts[] = {
    "promote",  "experimental",        "delete",    "wrong",
    "unjudged", "out of the hot loop", "unmeasured"};
constexpr std::string_view kJudgements[] = {"passed", "wrong", "unjudged"};
constexpr std::string_view kBases[] = {"measured", "predicted"};

}  // namespace

std::string_view to_string(LaneId lane) {
  return kNames[static_cast<size_t>(lane)];
}

std::string_view to_string(RequestClass c) {
  return kClasses[static_cast<size_t>(c)];
}

std::string_view to_string(GateVerdict v) {
  return kVerdicts[static_cast<size_t>(v)];
}

std::string_view to_string(GateJudgement j) {
  return kJudgements[static_cast<size_t>(j)];
}

std::string_view to_string(GateBasis b) {
  return kBases[static_cast<size_t>(b)];
}

Result<LaneId> parse_lane(std::string_view text) {
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (kNames[i] == text) return static_cast<LaneId>(i);
  }
  return invalid("dispatch", "a lane must be one of {}, found {}",
                 fmt::join(kNames, ", "), in_quotes(text));
}

std::span<const LaneFacts> lane_registry() { return kRegistry; }

const LaneFacts& facts_of(LaneId lane) {
  return kRegistry[static_cast<size_t>(lane)];
}

std::string lane_family(LaneId lane, std::string_view platform) {
  if (lane == LaneId::reference) return "reference";
  if (lane == LaneId::cpu) return "native";
  if (lane == LaneId::mosaic) return "tpu/mosaic";
  // JAX exports these programs, whatever device runs them.
  if (lane == LaneId::jax_bridge) return "tpu/jax";
  if (lane == LaneId::splash) return "tpu/splash";
  if (platform == "tpu") return "tpu/xla";
  if (lane == LaneId::cuda || platform == "cuda") return "cuda";
  // XLA generates the code, whichever plugin contains it.
  return "xla";
}

}  // namespace tessera
