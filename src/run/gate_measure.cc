// run/gate_measure.cc: judges our kernels and times them in turns with XLA's
// programs; the least time of each counts.
#include <algorithm>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/text.h"
#include "base/turns.h"
#include "lanes/bytes.h"
#include "lanes/splash/fits.h"
#include "receipt/machine.h"
#include "request/attention_data.h"
#include "request/random_inputs.h"
#include "run/gate_cases.h"
#include "run/gate_per_step.h"
#include "run/judge_run.h"
#include "run/kernel_tile.h"
#include "run/lane_plugin.h"
#include "run/passes.h"
#include "run/plain_xla.h"
#include "run/rules.h"
#include "run/session_state.h"
#include "tessera/dispatch.h"
#include "tessera/session.h"

namespace tessera {
namespace {

// Bounds host memory: all cases are made before any runs, each with the
// document ids of its keys.
constexpr int64_t kMaxGateTokens = int64_t{1} << 20;
// The most scores, over all heads, for which the dense program is timed.
constexpr double kMaxDenseScores = 1 << 28;

// Times in ms, each the least of all rounds.
struct Times {
  double kernel = 0;
  double plain = 0;
  XlaMethod method = XlaMethod::chunked;
};

// The plans of a case: for our kernel and for XLA's programs, each at its own
// tile. `asked` are the facts of the plan at the request's tile.
struct Planned {
  BorrowedBatch own, plain;
  PlanFacts asked;
};

// The time of the passes; for our kernels also the time to prepare the batch.
// Compiles and transfers are left out.
double time_of(LaneId lane, const Counters& ran) {
  return ran.forward_ms + ran.backward_ms +
         (lane == LaneId::xla ? 0 : ran.prepare_ms);
}

Result<request::AttentionData> data_of(const run::GateCase& c) {
  request::AttentionData data;
  data.batch = c.request.batch;
  data.q_len = c.request.q_len;
  data.kv_len = c.request.kv_len;
  data.shape = c.shape;
  data.dtype = c.dtype;
  data.backward = c.backward;
  // Only one lane at a time holds memory beside the arrays.
  const double needed =
      data_bytes(data).all +
      std::max(lanes::lane_bytes(c.lane, c.request, data.call()),
               lanes::lane_bytes(LaneId::xla, c.request, data.call()));
  auto fits = receipt::check_free("gate", needed, "the arrays");
  if (!fits) return fits.error();
  data.allocate();
  fill_inputs(data, 0);
  return data;
}

// Time of one run, in ms.
Result<double> run_case(LaneId lane, const Session& session, const Batch& batch,
                        request::AttentionData& data) {
  auto ran = run::run_passes(session, data.over(batch));
  if (!ran) return ran.error();
  return time_of(lane, ran->ready.counters());
}

// Runs our kernel once and compares its output with fp64.
Result<void> judge_case(GateRow& row, const Session& ours, const Batch& batch,
                        request::AttentionData& data) {
  auto ran = run::run_passes(ours, data.over(batch));
  if (!ran) return ran.error();
  auto check =
      run::judge_run(data.over(batch), {.flushes = ran->ready.state().flushes});
  if (!check) return check.error();
  const double error = check->max_bound_ratio;
  row.error = error < kMaxGateError ? error : kMaxGateError;
  row.judgement =
      *row.error <= 1 ? GateJudgement::passed : GateJudgement::wrong;
  if (*row.error > 1) row.why = check->worst;
  return {};
}

// The programs that kernels are timed against, the machine and the rounds.
struct Peers {
  const Machine& machine;
  const std::vector<run::PlainXla>& plains;
  const std::string& no_plugin;
  int64_t rounds = 1;
};

Result<Times> time_case(const run::GateCase& c, const Session& ours,
                        const Planned& on, request::AttentionData& data,
                        const Peers& peers) {
  const double scores = static_cast<double>(c.shape.heads) *
                        static_cast<double>(data.q_len) *
                        static_cast<double>(data.kv_len);
  // For plain causal, dispatch uses one method only, so only that is timed.
  const RequestFeatures f = features_of(c);
  const XlaMethod stable = run::xla_method(f, on.asked, peers.machine);
  const auto fits = [&](XlaMethod method) {
    if (f.request_class == RequestClass::plain_causal) return method == stable;
    return method != XlaMethod::dense || scores <= kMaxDenseScores;
  };
  std::vector<XlaMethod> methods;  // of turns[1], turns[2], ...
  std::vector<Turn<double>> turns = {
      [&] { return run_case(c.lane, ours, on.own, data); }};
  for (const run::PlainXla& plain : peers.plains) {
    if (!fits(plain.method)) continue;
    methods.push_back(plain.method);
    turns.emplace_back([&on, &data, session = &plain.session] {
      return run_case(LaneId::xla, *session, on.plain, data);
    });
  }
  auto ms = take_turns<double>(just(peers.rounds, /*warm_up=*/1), turns);
  if (!ms) return ms.error();
  Times out;
  out.kernel = std::ranges::min(ms->front());
  for (size_t i = 0; i < methods.size(); ++i) {
    const double best = std::ranges::min((*ms)[i + 1]);
    if (out.plain == 0 || best < out.plain) {
      out.plain = best;
      out.method = methods[i];
    }
  }
  return out;
}

const MachinePlugin* plugin_of(const run::GateCase& c, const Machine& machine) {
  return run::plugin_for(facts_of(c.lane), machine, features_of(c).call);
}

// Rows are about the machine, so a plugin's lane must run on its first device.
std::optional<std::string> why_not_here(const run::GateCase& c,
                                        const Planned& on,
                                        const Machine& machine) {
  if (auto why =
          why_not(c.lane, features_of(c), machine, plan_facts(on.own.plan()))) {
    return why;
  }
  if (c.lane == LaneId::cpu) return {};
  const MachinePlugin* const plugin = plugin_of(c, machine);
  const MachinePlugin* const first = run::first_device(machine);
  if (first && plugin != first) {
    return fmt::format("the first device is of {}", first->name);
  }
  // An inexact artifact would be judged wrong, which would bar exact ones too.
  return c.artifact
             ? splash::inexact(*c.artifact->spec.splash, plugin->platform)
             : std::nullopt;
}

// Whether the kernel needs another program each step, at its own tile. An
// artifact is one program for all batches.
Result<bool> is_per_step(const run::GateCase& c, const Planned& on,
                         const Session& ours) {
  if (c.artifact) return false;
  run::GateCase own = c;
  own.request.tile = on.own.request().tile;
  return needs_shape_per_step(own, ours);
}

// Judges the kernel first; a wrong one is not timed.
Result<void> measure_case(GateRow& row, const run::GateCase& c,
                          const Planned& on, const Peers& peers) {
  auto data = data_of(c);
  if (!data) return data.error();
  SessionOptions own;
  own.lane = c.lane;
  if (c.lane != LaneId::cpu) {
    own.xla.plugin = plugin_of(c, peers.machine)->name;
  }
  if (c.artifact) own.artifact = *c.artifact;
  auto ours = Session::open(own);
  if (!ours) return ours.error();
  if (auto e = judge_case(row, *ours, on.own, *data); !e) return e.error();
  if (row.judgement == GateJudgement::wrong) return {};
  auto per_step = is_per_step(c, on, *ours);
  if (!per_step) return per_step.error();
  row.shape_per_step = *per_step;
  if (*per_step) row.why = "another batch of its contract compiles again";
  if (peers.plains.empty()) {
    row.why = peers.no_plugin;
    return {};
  }
  auto times = time_case(c, *ours, on, *data, peers);
  if (!times) return times.error();
  row.kernel_ms = times->kernel;
  row.plain_ms = times->plain;
  row.plain = times->method;
  row.factor = times->plain / times->kernel;
  return {};
}

// TPU kernels are planned at the tile of their table, as in a run. XLA's
// programs are planned at no tile below the granule, which would need a
// lowering reason.
Result<Planned> plan_case(const run::GateCase& c, const Facts& facts,
                          const std::string& target) {
  const auto at = [&](const Tile& tile) {
    Request request = c.request;
    request.tile = tile;
    return BorrowedBatch::make(std::move(request), facts);
  };
  auto asked = at(c.request.tile);
  if (!asked) return asked.error();
  Planned out = {*asked, *asked, plan_facts(asked->plan())};
  if (c.lane == LaneId::mosaic) {
    // The session that measures the kernel has default options too.
    auto own = at(run::kernel_tile(*asked, attention_call(c), target, {}).tile);
    if (!own) return own.error();
    out.own = std::move(*own);
  }
  const auto chip = find_chip(target);
  if (chip && is_below_granule(c.request.tile, chip->granule)) {
    auto plain = at({chip->granule, chip->granule});
    if (!plain) return plain.error();
    out.plain = std::move(*plain);
  }
  return out;
}

GateRow row_of(const run::GateCase& c, const Planned& on,
               const Machine& machine) {
  GateRow row;
  row.kernel = c.kernel;
  row.lane = c.lane;
  row.machine = machine.key();
  row.request_class = features_of(c).request_class;
  row.mask = to_string(c.request.masks[0]);
  row.backward = c.backward;
  row.dtype = c.dtype;
  row.q_len = c.request.q_len;
  row.kv_len = c.request.kv_len;
  row.shape = c.shape;
  row.density = on.asked.density();
  row.tile = on.own.request().tile;
  return row;
}

Result<void> check_sizes(const GateSizes& s, int64_t rounds) {
  for (const std::vector<int64_t>* lengths : {&s.tokens, &s.decode_keys}) {
    for (const int64_t n : *lengths) {
      if (n > 0 && n <= kMaxGateTokens) continue;
      return invalid("gate", "tokens and decode_keys must be 1 to {}, found {}",
                     kMaxGateTokens, n);
    }
  }
  if (s.dtypes.empty() && !s.artifact) {
    return invalid("gate", "there must be dtypes or an artifact, found none");
  }
  constexpr int64_t kMaxGateHeads = kMaxHeads / run::kDecodeGroup;
  if (s.heads < 1 || s.heads > kMaxGateHeads) {
    return invalid("gate", "heads must be 1 to {}, found {}", kMaxGateHeads,
                   s.heads);
  }
  if (s.artifact && !s.artifact->spec.splash) {
    return invalid("gate", "the artifact must be Splash's kernel, found {}",
                   in_quotes(s.artifact->spec.name));
  }
  if (rounds > 0) return {};
  return invalid("gate", "rounds must be from 1, found {}", rounds);
}

}  // namespace

Result<GateMeasured> measure_gate(const GateSizes& sizes, int64_t rounds,
                                  const std::optional<std::string>& plugin,
                                  const Machine& machine,
                                  const std::function<void(double)>& progress) {
  if (auto e = check_sizes(sizes, rounds); !e) return e.error();
  const std::vector<run::GateCase> cases = run::gate_cases(sizes);
  if (cases.empty()) {
    return invalid("gate", "a table must have rows, found none for the sizes");
  }
  GateMeasured out;
  // Rows are about this machine, so plain XLA runs on its first device.
  const MachinePlugin* const first = run::first_device(machine);
  auto plains = run::open_plain_xla(
      plugin || !first ? plugin : std::optional(first->name), out.plugin);
  if (!plains) return plains.error();
  const std::string target = first ? run::target_of(machine, first->name) : "";
  const Peers peers = {machine, *plains, out.plugin, rounds};
  for (size_t i = 0; i < cases.size(); ++i) {
    const run::GateCase& c = cases[i];
    Facts facts;
    if (!c.doc_ids.empty()) facts.doc_ids = c.doc_ids;
    auto on = plan_case(c, facts, target);
    if (!on) return on.error();
    GateRow row = row_of(c, *on, machine);
    auto why = why_not_here(c, *on, machine);
    if (!why) {
      auto e = measure_case(row, c, *on, peers);
      // A refusal by a device's compiler or memory costs only this row.
      if (!e && c.lane == LaneId::cpu) return e.error();
      if (!e) why = e.error().message;
    }
    if (why) row.why = *std::move(why);
    out.table.rows.push_back(std::move(row));
    if (progress) {
      progress(static_cast<double>(i + 1) / static_cast<double>(cases.size()));
    }
  }
  set_verdicts(out.table);
  return out;
}

}  // namespace tessera
