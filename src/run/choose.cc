// run/choose.cc: the choice of a lane. Pure: no clock, file or global.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "lanes/splash/fits.h"
#include "run/gate_rows.h"
#include "run/lane_plugin.h"
#include "run/lane_rules.h"
#include "run/rules.h"
#include "tessera/dispatch.h"
#include "tessera/machine.h"

namespace tessera {
namespace {

using run::barred;
using run::Candidate;
using run::denied;
using run::first_device;
using run::is_device;
using Why = std::optional<std::string>;

struct Asked {
  const RequestFeatures& f;
  const PlanFacts& plan;
  const Machine& m;
  const GateTable& gate;
};

bool is_predicted(const Candidate& c) {
  return c.rule && run::is_predicted(*c.rule);
}

Candidate by_row(const GateRow& row, const Asked& a) {
  const bool ours = wins(row) && row.verdict != GateVerdict::drop;
  Candidate out = {ours ? row.lane : LaneId::xla, row.plain,
                   run::row_words(row, ours)};
  if (ours) return out;
  const XlaMethod ruled = run::xla_method(a.f, a.plan, a.m);
  if (row.plain == ruled) return out;
  if (a.f.request_class == RequestClass::plain_causal) {
    // For plain causal, memory decides the method, not speed. `tessera gate`
    // times only this method; a table made elsewhere may name another.
    out.method = ruled;
    out.reason += fmt::format("; plain causal stays with {}", to_string(ruled));
  } else if (ruled == XlaMethod::worklist && a.plan.density() < row.density) {
    // The row's method visits every tile and was fastest in a denser plan.
    out.method = ruled;
    out.reason += fmt::format("; at {} of {} tiles the worklist", a.plan.active,
                              a.plan.tiles);
  }
  return out;
}

// Rows are about one device. On a mesh each device runs what the row chose,
// except that lane xla has only its worklist program there.
void tell_mesh(const RequestFeatures& f, Choice& out) {
  if (f.call.devices <= 1) return;
  if (out.lane == LaneId::xla && out.method != XlaMethod::worklist) {
    out.method = XlaMethod::worklist;
    out.reason += "; on a mesh xla has its worklist alone";
  }
  if (!out.gate.empty() || out.rule) {
    out.reason += fmt::format(
        "; the row is of one device, applied to a mesh of {}", f.call.devices);
  }
}

// Why the scores of the caller's Splash kernel are out of bounds here.
Why inexact(const RequestFeatures& f, const Machine& m) {
  const MachinePlugin* on =
      run::plugin_for(facts_of(LaneId::splash), m, f.call);
  return splash::inexact(*f.call.splash, on ? on->platform : "");
}

// Whether the rules may not choose the lane for its artifact, although it can
// run: the artifact was exported for another platform than the machine's first
// device, or its scores are out of bounds. A caller who names the lane accepts
// its rounding, and --check judges it.
bool by_name_alone(LaneId lane, const RequestFeatures& f, const Machine& m) {
  const MachinePlugin* device = first_device(m);
  if (device &&
      !run::is_exported_for(facts_of(lane), f.call, device->platform)) {
    return true;
  }
  return lane == LaneId::splash && f.call.splash && inexact(f, m);
}

std::string behind(const LaneFacts& lane, const Asked& a,
                   const Choice& choice) {
  if (lane.lane == LaneId::splash) {
    if (auto why = inexact(a.f, a.m)) return *why;
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

// Rows that keep lanes out, one per lane, in the order the lanes were tried.
using Bars = std::vector<const GateRow*>;

const GateRow* bar_of(const Bars& bars, LaneId lane) {
  const auto at = std::ranges::find(bars, lane, &GateRow::lane);
  return at == bars.end() ? nullptr : *at;
}

void add(Bars& bars, const GateRow* row) {
  if (!bar_of(bars, row->lane)) bars.push_back(row);
}

// Why the lane cannot run the request: its own limits, the machine, or a row of
// the gate, which is then added to `bars`.
Why against(LaneId lane, const Asked& a, Bars& bars) {
  if (auto why = why_not(lane, a.f, a.m, a.plan)) return why;
  if (const GateRow* row = barred(a.gate, lane, a.f, a.m)) add(bars, row);
  const GateRow* row = bar_of(bars, lane);
  return row ? Why(run::barred_words(*row)) : Why();
}

// Adds every other lane with the reason against it, or with `behind` if there
// is none; then adds all rows that keep lanes out.
void reject_others(const Asked& a, Bars bars, const auto& behind, Choice& out) {
  for (const LaneFacts& other : lane_registry()) {
    if (other.lane == out.lane) continue;
    const Why why = against(other.lane, a, bars);
    out.rejected.push_back({other.lane, why ? *why : behind(other)});
  }
  for (const GateRow* row : bars) out.gate.push_back(*row);
}

// The row of the gate that decides before the rules; measured rows come before
// predicted ones. Of each kernel only the first row that applies counts. Among
// kernels that win and can run, the one with the largest factor is taken. A
// row that loses sends the request to XLA; if its lane is not automatic, only
// if the rules would choose that lane.
const GateRow* row_for(const Asked& a, std::span<const Candidate> by_rule) {
  const auto lead = [](const GateRow& row) {
    return wins(row) ? *row.factor : 0;
  };
  const auto can_win = [&](const GateRow& row) {
    return !by_name_alone(row.lane, a.f, a.m) &&
           !why_not(row.lane, a.f, a.m, a.plan) &&
           (row.basis == GateBasis::measured ||
            !denied(a.gate, row.lane, a.f, a.m));
  };
  const auto can_lose = [&](const GateRow& row) {
    return facts_of(row.lane).automatic ||
           (!by_name_alone(row.lane, a.f, a.m) &&
            std::ranges::find(by_rule, row.lane, &Candidate::lane) !=
                by_rule.end());
  };
  for (const GateBasis basis : {GateBasis::measured, GateBasis::predicted}) {
    std::set<std::string_view> heard;
    const GateRow* best = nullptr;
    for (const GateRow& row : a.gate.rows) {
      if (row.basis != basis || !applies(row, a.f, a.plan, a.m) ||
          !heard.insert(row.kernel).second) {
        continue;
      }
      if (!(wins(row) ? can_win(row) : can_lose(row))) continue;
      if (!best || lead(row) > lead(*best)) best = &row;
    }
    if (best) return best;
  }
  return nullptr;
}

// The first candidate that can run and that no row keeps out; `bars` gets the
// rows against those before it. A candidate that is only denied() is taken if
// there is no other.
const Candidate* first_free(const Asked& a,
                            std::span<const Candidate> candidates, Bars& bars) {
  const auto& [f, plan, m, gate] = a;
  for (const bool all : {false, true}) {
    bars.clear();
    for (const Candidate& c : candidates) {
      if (by_name_alone(c.lane, f, m) || why_not(c.lane, f, m, plan)) continue;
      const GateRow* row = barred(gate, c.lane, f, m);
      if (!row && !all && is_predicted(c)) row = denied(gate, c.lane, f, m);
      if (!row) return &c;
      add(bars, row);
    }
  }
  return nullptr;
}

Error no_candidate(const Asked& a, Bars bars) {
  std::string found;
  for (const LaneFacts& lane : lane_registry()) {
    found +=
        fmt::format("{}{}: {}", found.empty() ? "" : "; ", to_string(lane.lane),
                    against(lane.lane, a, bars)
                        .value_or("it runs only where it is asked for"));
  }
  return unavailable("dispatch", "a lane must be able to run this, found {}",
                     found);
}

Result<Choice> forced_to(LaneId id, const Asked& a) {
  if (auto why = why_not(id, a.f, a.m, a.plan)) {
    return unavailable("dispatch",
                       "the lane that was asked for must be able to run this, "
                       "found {}: {}",
                       to_string(id), *why);
  }
  Choice out = run::by_name(id, a.f, a.plan, a.m);
  const LaneFacts& lane = facts_of(id);
  if (lane.needs_plugin) {
    out.plugin = run::plugin_for(lane, a.m, a.f.call)->name;
  }
  return out;
}

}  // namespace

Choice run::no_lane(const RequestFeatures& f, const PlanFacts& plan,
                    const Machine& m, const GateTable& gate) {
  Choice out;
  out.lane = LaneId::cpu;
  out.request_class = f.request_class;
  out.reason = "no lane of the rules can run it";
  Bars bars;
  if (const GateRow* row = barred(gate, out.lane, f, m)) add(bars, row);
  reject_others(
      {f, plan, m, gate}, std::move(bars),
      [](const LaneFacts&) {
        return std::string("it runs only where it is asked for by name");
      },
      out);
  return out;
}

Result<Choice> choose(const RequestFeatures& f, const PlanFacts& plan,
                      const Machine& m, const GateTable& gate,
                      std::optional<LaneId> forced) {
  const Asked asked = {f, plan, m, gate};
  if (forced) return forced_to(*forced, asked);
  std::vector<Candidate> candidates = run::by_rule(f, plan, m);
  const GateRow* row =
      f.call.compile_only ? nullptr : row_for(asked, candidates);
  if (row) candidates.insert(candidates.begin(), by_row(*row, asked));
  Bars bars;
  const Candidate* chosen = first_free(asked, candidates, bars);
  if (!chosen) return no_candidate(asked, std::move(bars));
  Choice out;
  out.lane = chosen->lane;
  out.method = chosen->method;
  out.request_class = f.request_class;
  out.reason = chosen->reason;
  out.rule = chosen->rule;
  // A row whose lane cannot run here decided nothing, so it is left out.
  const Candidate& first = candidates.front();
  if (row && (chosen == &first || bar_of(bars, first.lane))) {
    out.gate.push_back(*row);
  }
  tell_mesh(f, out);
  const LaneFacts& lane = facts_of(out.lane);
  if (lane.needs_plugin) {
    out.plugin = run::plugin_for(lane, m, f.call)->name;
  }
  reject_others(
      asked, std::move(bars),
      [&](const LaneFacts& other) { return behind(other, asked, out); }, out);
  return out;
}

}  // namespace tessera
