// run/choose.cc: the choice of a lane. Pure: no clock, file or global.
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <span>
#include <string_view>

#include "base/dtype_word.h"
#include "base/fail.h"
#include "lanes/mosaic/kernel.h"
#include "lanes/mosaic/vector_memory.h"
#include "lanes/splash/fits.h"
#include "lanes/tensors.h"
#include "mask/canonical.h"
#include "run/gate_rows.h"
#include "run/lane_plugin.h"
#include "run/lane_rules.h"
#include "run/rules.h"
#include "tessera/dispatch.h"
#include "tessera/layouts.h"
#include "tessera/machine.h"

namespace tessera {
namespace {

using run::barred;
using run::Candidate;
using run::denied;
using run::first_device;
using run::is_device;
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
    return std::string("scale and softcap must be finite");
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

// Of the TPUs of that generation; where it is not known, the most that one has.
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

// After the sizes themselves: what they take of a TPU's vector memory. A call
// with a backward pass has a kernel for each direction.
Why memory_wrong(const LaneFacts& lane, const RequestFeatures& f,
                 std::string_view generation) {
  // What a device of a mesh takes, its shards decide.
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
  if (f.plan_heads > 1 && !lane.masks_by_head) {
    return std::string("it has one mask for all heads");
  }
  return {};
}

bool is_predicted(const Candidate& c) {
  return c.rule && c.rule->source.starts_with("predicted");
}

Candidate by_row(const GateRow& row, const RequestFeatures& f) {
  const bool ours = wins(row) && row.verdict != GateVerdict::drop;
  Candidate out = {ours ? row.lane : LaneId::xla, row.plain,
                   run::row_words(row, ours)};
  // Memory decides there, whatever was the fastest. `tessera gate` times no
  // other program of plain causal; tables made elsewhere may.
  const XlaMethod stable = run::stable_method(f);
  if (!ours && f.request_class == RequestClass::plain_causal &&
      row.plain != stable) {
    out.method = stable;
    out.reason +=
        fmt::format("; plain causal stays with {}", to_string(stable));
  }
  return out;
}

// The rows are of one device, and each of a mesh runs what they chose; of
// xla's programs that of the worklist.
void tell_mesh(const RequestFeatures& f, Choice& out) {
  if (!on_mesh(f)) return;
  if (out.lane == LaneId::xla && out.method != XlaMethod::worklist) {
    out.method = XlaMethod::worklist;
    out.reason += "; on a mesh xla has its worklist alone";
  }
  if (out.gate || out.rule) {
    out.reason += fmt::format(
        "; the row is of one device, applied to a mesh of {}", f.call.devices);
  }
}

// Of an artifact that can run all the same: one that was exported for another
// platform than the machine's device, where that platform is, or whose scores
// are out of bounds. Who names it asked for its roundings too, and --check
// judges them; nobody else gets them.
bool by_name_alone(LaneId lane, const RequestFeatures& f, const Machine& m) {
  const MachinePlugin* device = first_device(m);
  if (device &&
      !run::is_exported_for(facts_of(lane), f.call, device->platform)) {
    return true;
  }
  return lane == LaneId::splash && f.call.splash &&
         splash::inexact(*f.call.splash);
}

std::string behind(const LaneFacts& lane, const RequestFeatures& f,
                   const Choice& choice) {
  if (lane.lane == LaneId::splash) {
    if (auto why = splash::inexact(*f.call.splash)) return *why;
  }
  if (!lane.automatic) {
    return lane.same_meaning ? "it runs only where it is asked for by name"
                             : "an artifact runs where it is asked for by name";
  }
  return fmt::format("it could, but {} comes first", to_string(choice.lane));
}

}  // namespace

bool Machine::only_cpu() const { return first_device(*this) == nullptr; }

std::string Machine::key() const {
  std::string out = fmt::format(
      "{}, {} threads, {}", cpu, threads,
      isas.empty() ? std::string_view("none") : to_string(isas.back()));
  for (const MachinePlugin& p : plugins) {
    if (!is_device(p)) continue;
    out += fmt::format(", {} x {}{}{}", p.devices, p.platform,
                       p.generation.empty() ? "" : " ", p.generation);
  }
  return out;
}

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
  // What it compiles ahead may be for another chip than the one that is here.
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

Choice run::by_name(LaneId lane, const RequestFeatures& f,
                    const PlanFacts& plan, const Machine& m) {
  Choice out;
  out.lane = lane;
  out.request_class = f.request_class;
  out.reason = "it was asked for by name";
  for (const LaneFacts& other : lane_registry()) {
    if (other.lane == lane) continue;
    out.rejected.push_back(
        {other.lane,
         why_not(other.lane, f, m, plan)
             .value_or(fmt::format("{} was asked for", to_string(lane)))});
  }
  return out;
}

namespace {

// What keeps a lane from a request: itself, the machine or the gate.
Why against(LaneId lane, const RequestFeatures& f, const PlanFacts& plan,
            const Machine& m, const GateTable& gate) {
  if (auto why = why_not(lane, f, m, plan)) return why;
  const GateRow* row = barred(gate, lane, f, m);
  return row ? Why(run::barred_words(*row)) : Why();
}

// What a receipt of the choice holds of the gate, and may quote: one row.
GateTable told_of(const Choice& choice) {
  GateTable out;
  if (choice.gate) out.rows.push_back(*choice.gate);
  return out;
}

// A row goes before the rules, and what was measured on this machine before
// what is predicted. The first that applies is its kernel's word; of kernels
// that win and can run, the one that is furthest ahead. A row that loses sends
// the request to XLA: of a lane that runs by name, only where the rules name
// it.
std::optional<GateRow> row_for(const GateTable& gate, const RequestFeatures& f,
                               const PlanFacts& plan, const Machine& m,
                               std::span<const Candidate> by_rule) {
  const auto lead = [](const GateRow& row) {
    return wins(row) ? *row.factor : 0;
  };
  const auto can_win = [&](const GateRow& row) {
    return !by_name_alone(row.lane, f, m) && !why_not(row.lane, f, m, plan) &&
           (row.basis == GateBasis::measured || !denied(gate, row.lane, f, m));
  };
  const auto can_lose = [&](const GateRow& row) {
    return facts_of(row.lane).automatic ||
           (!by_name_alone(row.lane, f, m) &&
            std::ranges::find(by_rule, row.lane, &Candidate::lane) !=
                by_rule.end());
  };
  for (const GateBasis basis : {GateBasis::measured, GateBasis::predicted}) {
    std::set<std::string_view> heard;
    const GateRow* best = nullptr;
    for (const GateRow& row : gate.rows) {
      if (row.basis != basis || !applies(row, f, plan, m) ||
          !heard.insert(row.kernel).second) {
        continue;
      }
      if (!(wins(row) ? can_win(row) : can_lose(row))) continue;
      if (!best || lead(row) > lead(*best)) best = &row;
    }
    if (best) return *best;
  }
  return {};
}

}  // namespace

Choice run::no_lane(const RequestFeatures& f, const PlanFacts& plan,
                    const Machine& m, const GateTable& gate) {
  Choice out;
  out.lane = LaneId::cpu;
  out.request_class = f.request_class;
  out.reason = "no lane of the rules can run it";
  if (const GateRow* row = barred(gate, out.lane, f, m)) out.gate = *row;
  const GateTable told = told_of(out);
  for (const LaneFacts& other : lane_registry()) {
    if (other.lane == out.lane) continue;
    out.rejected.push_back(
        {other.lane, against(other.lane, f, plan, m, told)
                         .value_or("it runs only where it is asked for by "
                                   "name")});
  }
  return out;
}

Result<Choice> choose(const RequestFeatures& f, const PlanFacts& plan,
                      const Machine& m, const GateTable& gate,
                      std::optional<LaneId> forced) {
  if (forced) {
    if (auto why = why_not(*forced, f, m, plan)) {
      return unavailable("dispatch",
                         "the lane that was asked for must be able to run "
                         "this, found {}: {}",
                         to_string(*forced), *why);
    }
    Choice out = run::by_name(*forced, f, plan, m);
    const LaneFacts& lane = facts_of(*forced);
    if (lane.needs_plugin) {
      out.plugin = run::plugin_for(lane, m, f.call)->name;
    }
    return out;
  }

  std::vector<Candidate> candidates = run::by_rule(f, plan, m);
  Choice out;
  out.request_class = f.request_class;
  if (!f.call.compile_only) {
    out.gate = row_for(gate, f, plan, m, candidates);
    if (out.gate) {
      candidates.insert(candidates.begin(), by_row(*out.gate, f));
    }
  }

  const Candidate* chosen = nullptr;
  const GateRow* bar = nullptr;
  // What is only denied runs where nothing else can.
  for (const bool all : {false, true}) {
    for (const Candidate& c : candidates) {
      if (by_name_alone(c.lane, f, m) || why_not(c.lane, f, m, plan)) continue;
      const GateRow* row = barred(gate, c.lane, f, m);
      if (!row && !all && is_predicted(c)) row = denied(gate, c.lane, f, m);
      if (row) {
        if (!bar) bar = row;
        continue;
      }
      chosen = &c;
      break;
    }
    if (chosen) break;
    bar = nullptr;
  }
  if (!chosen) {
    std::string found;
    for (const LaneFacts& lane : lane_registry()) {
      found += fmt::format("{}{}: {}", found.empty() ? "" : "; ",
                           to_string(lane.lane),
                           against(lane.lane, f, plan, m, gate)
                               .value_or("it runs only where it is asked for"));
    }
    return unavailable("dispatch", "a lane must be able to run this, found {}",
                       found);
  }
  if (out.gate && chosen != &candidates.front()) out.gate.reset();
  if (!out.gate && bar) out.gate = *bar;
  out.lane = chosen->lane;
  out.method = chosen->method;
  out.reason = chosen->reason;
  out.rule = chosen->rule;
  tell_mesh(f, out);
  const LaneFacts& lane = facts_of(out.lane);
  if (lane.needs_plugin) {
    out.plugin = run::plugin_for(lane, m, f.call)->name;
  }
  const GateTable told = told_of(out);
  for (const LaneFacts& other : lane_registry()) {
    if (other.lane == out.lane) continue;
    auto why = against(other.lane, f, plan, m, told);
    if (!why && bar && bar->lane == other.lane) why = run::barred_words(*bar);
    out.rejected.push_back({other.lane, why ? *why : behind(other, f, out)});
  }
  return out;
}

}  // namespace tessera
