// run/lane_rules.cc: why a lane cannot run a request: the lane's own limits,
// then the machine. Pure: no clock, file or global.
#include "run/lane_rules.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "base/dtype_word.h"
#include "lanes/mosaic/kernel.h"
#include "lanes/mosaic/vector_memory.h"
#include "lanes/splash/fits.h"
#include "lanes/tensors.h"
#include "mask/canonical.h"
#include "run/lane_plugin.h"
#include "tessera/layouts.h"
#include "tessera/machine.h"

namespace tessera {
namespace {

using Why = std::optional<std::string>;

bool on_mesh(const RequestFeatures& f) { return f.call.devices > 1; }

Why words_missing(const LaneFacts& lane, const RequestFeatures& f) {
  const uint32_t missing = f.atoms & ~lane.atoms;
  if (missing != 0) {
    std::vector<std::string_view> names;
    for (const mask::AtomSpec& spec : mask::atom_specs()) {
      if ((missing >> static_cast<unsigned>(spec.atom) & 1U) != 0) {
        names.push_back(spec.name);
      }
    }
    return fmt::format("its masks have no {}", fmt::join(names, ", "));
  }
  if (!f.only_and && !lane.any_words) {
    return std::string("its masks are atoms joined by &, without | and !");
  }
  return {};
}

Why sizes_wrong(const LaneFacts& lane, const RequestFeatures& f) {
  for (const auto& [what, dim] : {std::pair("head dim", f.shape.head_dim),
                                  {"value head dim", f.shape.v_head_dim}}) {
    if (dim >= 1 && dim % lane.dim_step == 0 && dim <= lane.max_dim) continue;
    if (lane.dim_step == lane.max_dim) {
      return fmt::format("its {} is {}, not {}", what, lane.max_dim, dim);
    }
    return fmt::format("its {} is a multiple of {} up to {}, not {}", what,
                       lane.dim_step, lane.max_dim, dim);
  }
  if (f.shape.kv_heads < 1 || f.shape.heads < 1 ||
      f.shape.heads % f.shape.kv_heads != 0 ||
      f.shape.heads % f.plan_heads != 0) {
    return fmt::format(
        "{} heads must be shared by {} K/V heads and {} plan "
        "heads",
        f.shape.heads, f.shape.kv_heads, f.plan_heads);
  }
  if (lane.tile_step > 0) {
    for (const int64_t side : {f.tile.q, f.tile.kv}) {
      if (side > 0 && side % lane.tile_step == 0 && side <= lane.max_tile) {
        continue;
      }
      return fmt::format(
          "its tiles have sides of multiples of {} up to {}, "
          "not {}x{}",
          lane.tile_step, lane.max_tile, f.tile.q, f.tile.kv);
    }
  }
  if (lane.max_pairs > 0) {
    const double pairs =
        static_cast<double>(f.batch) * static_cast<double>(f.shape.heads) *
        static_cast<double>(f.q_len) * static_cast<double>(f.kv_len);
    if (pairs > static_cast<double>(lane.max_pairs)) {
      return fmt::format("it takes at most {} pairs, not {:.4g}",
                         lane.max_pairs, pairs);
    }
  }
  return {};
}

Why numbers_wrong(const LaneFacts& lane, const RequestFeatures& f) {
  const AttentionShape& s = f.shape;
  const double scale = s.scale_or_default();
  if (!std::isfinite(scale) || !std::isfinite(s.softcap) || s.softcap < 0) {
    return fmt::format(
        "its scale is finite and its softcap 0 or more, not {} "
        "and {}",
        scale, s.softcap);
  }
  if (lane.max_scale > 0 &&
      !(scale >= lane.min_scale && scale <= lane.max_scale)) {
    return fmt::format("its scale is from {} to {}, not {}", lane.min_scale,
                       lane.max_scale, scale);
  }
  if (lane.max_scale > 0 && s.softcap != 0 &&
      !(s.softcap >= lane.min_scale && s.softcap <= lane.max_scale)) {
    return fmt::format("its softcap is 0 or from {} to {}, not {}",
                       lane.min_scale, lane.max_scale, s.softcap);
  }
  if (lane.lane == LaneId::reference || lane.lane == LaneId::jax_bridge) {
    return {};
  }
  if (std::abs(scale) > lanes::kMaxFactor || s.softcap > lanes::kMaxFactor ||
      (s.softcap != 0 && (s.softcap < lanes::kMinCap ||
                          std::abs(scale) / s.softcap > lanes::kMaxFactor))) {
    return fmt::format(
        "its scores fit float32, not with scale {} and softcap "
        "{}",
        scale, s.softcap);
  }
  return {};
}

// Vector memory of a TPU of the generation, in bytes; if the generation is not
// known, the most that any known TPU has.
int64_t vector_bytes_of(std::string_view generation) {
  int64_t most = 0;
  for (const Chip& chip : chips()) {
    const auto target = find_target(chip.name);
    if (!target) continue;
    if (chip.name == generation) return target->vector_bytes;
    most = std::max(most, target->vector_bytes);
  }
  return most;
}

// Checks the vector memory of a TPU, after the sizes themselves were checked. A
// call with a backward pass has a kernel for each direction.
Why memory_wrong(const LaneFacts& lane, const RequestFeatures& f,
                 std::string_view generation) {
  // On a mesh the need of a device depends on its shards, not known here.
  if (lane.lane != LaneId::mosaic || on_mesh(f)) return {};
  for (const int64_t tokens : {f.q_len, f.kv_len}) {
    if (tokens < 1 || tokens > kMaxTokens) return {};
  }
  const int64_t core = vector_bytes_of(generation);
  RequestFeatures one = f;
  for (const bool backward : {true, false}) {
    if (backward && !f.call.backward) continue;
    one.call.backward = backward;
    const int64_t bytes = mosaic::least_vector_bytes(one);
    const int64_t room = mosaic::vector_room(core, backward);
    if (bytes <= room) continue;
    return fmt::format("its {} has {} bytes of vector memory, not {}",
                       backward ? "backward" : "forward", room, bytes);
  }
  return {};
}

Why call_wrong(const LaneFacts& lane, const RequestFeatures& f) {
  const CallFeatures& c = f.call;
  if ((lane.dtypes >> static_cast<unsigned>(c.dtype) & 1U) == 0) {
    return fmt::format("it has no arrays of {}", dtype_word(c.dtype));
  }
  if (c.backward && !lane.backward) return std::string("it has no backward");
  if (f.shape.softcap != 0 && !lane.softcap) {
    return std::string("it has no softcap");
  }
  if (c.sink_logits && !lane.sink_logits) {
    return std::string("it has no sink logits");
  }
  if (c.sink_telemetry && !lane.sink_telemetry) {
    return std::string("it has no sink telemetry");
  }
  if (on_mesh(f) && !lane.meshes) {
    return fmt::format("it runs on one device, not on a mesh of {}", c.devices);
  }
  if (f.masks > 1 && !lane.masks_by_head) {
    return std::string("it has one mask for all heads");
  }
  return {};
}

}  // namespace

std::optional<std::string> run::cannot(const LaneFacts& lane,
                                       const RequestFeatures& f,
                                       std::string_view generation) {
  if (!lane.absent.empty()) return std::string(lane.absent);
  if (lane.lane == LaneId::jax_bridge && !f.call.bridge_artifact) {
    if (f.call.splash) {
      return std::string("its artifact is Splash's kernel, a lane of its own");
    }
    return std::string(
        "it needs an artifact that JAX exported, none was given");
  }
  if (lane.lane == LaneId::splash && !f.call.splash) {
    return std::string(
        "it needs Splash's kernel as JAX exported it, none was given");
  }
  for (const auto check :
       {words_missing, call_wrong, sizes_wrong, numbers_wrong}) {
    if (auto why = check(lane, f)) return why;
  }
  if (auto why = memory_wrong(lane, f, generation)) return why;
  if (lane.lane == LaneId::splash) {
    if (auto why = splash::misfit(*f.call.splash, f)) return why;
  }
  if (f.call.compile_only) {
    if (lane.lane != LaneId::mosaic) {
      return std::string("it compiles when it runs");
    }
  }
  return {};
}

std::optional<std::string> why_not(LaneId id, const RequestFeatures& f,
                                   const Machine& m, const PlanFacts& plan) {
  const LaneFacts& lane = facts_of(id);
  const MachinePlugin* const plugin =
      lane.needs_plugin ? run::plugin_for(lane, m, f.call) : nullptr;
  // A kernel that is compiled ahead may be for another chip than this one.
  const std::string_view generation =
      plugin && !f.call.compile_only ? plugin->generation : std::string_view();
  if (auto why = run::cannot(lane, f, generation)) return why;
  if (id == LaneId::cpu && m.isas.empty()) {
    return std::string("the machine has no ISA that its kernels know");
  }
  if (lane.needs_plugin && !plugin) {
    return run::no_plugin(lane, m, f.call);
  }
  if (id == LaneId::splash) return splash::misfit(*f.call.splash, plan);
  return {};
}

}  // namespace tessera
