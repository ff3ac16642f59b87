// run/session.cc: lanes are opened once, batches prepared once, layers run.
#include "tessera/session.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "base/timed.h"
#include "base/trace.h"
#include "lanes/tensors.h"
#include "plan/batch_state.h"
#include "receipt/machine.h"
#include "run/check_arrays.h"
#include "run/device_memory.h"
#include "run/features.h"
#include "run/gate_rows.h"
#include "run/lane_rules.h"
#include "run/pick_lane.h"
#include "run/session_state.h"
#include "tessera/machine.h"

namespace tessera {
namespace {

std::atomic<uint64_t> next_id{1};

Result<void> check_heads(const Batch& batch, const AttentionCall& call) {
  return lanes::check_heads("run", call.shape, batch.plan().heads);
}

RequestFeatures features_of_call(const Request& request, const Facts& present,
                                 const AttentionCall& call,
                                 const SessionOptions& options) {
  return features_of(request, present, call.shape,
                     run::call_features(call, options));
}

// The caller holds the session's mutex. A given choice is kept, unless the
// options name a lane or the machine is not known yet.
Result<Choice> choose_lane(Session::State& s, const RequestFeatures& features,
                           const Plan& plan,
                           const std::optional<Choice>& chosen = {}) {
  if (features.call.sink_telemetry && s.options.mesh.devices() > 1) {
    return unavailable("dispatch",
                       "sink telemetry must be of one device, found a mesh of "
                       "{}",
                       s.options.mesh.devices());
  }
  if (chosen && !s.options.lane && s.machine) return *chosen;
  return run::pick_lane({s.options.lane, s.options.fallback, s.options.gate},
                        features, plan_facts(plan),
                        s.options.machine.has_value(), s.machine);
}

lanes::LaneOptions lane_options(const SessionOptions& options,
                                const Choice& choice) {
  lanes::LaneOptions out{options.cpu, options.xla, options.artifact,
                         options.mesh, options.shards};
  if (!options.lane && !choice.plugin.empty()) {
    out.xla.plugin = choice.plugin;
    out.xla.method = choice.method;
  }
  return out;
}

Result<std::shared_ptr<lanes::OpenLane>> open_lane(
    Session::State& s, const lanes::Lane& lane,
    const lanes::LaneOptions& options) {
  const std::lock_guard lock(s.mutex);
  std::shared_ptr<lanes::OpenLane>& open =
      s.open[{lane.lane, options.xla.plugin, options.xla.method}];
  if (open) return open;
  auto made = lane.open(options);
  if (!made) return made.error();
  open = std::move(*made);
  return open;
}

Result<void> check_mesh_lanes(const SessionOptions& options) {
  if (options.mesh.axes.empty()) return {};
  if (!options.lane && options.mesh.devices() == 1) {
    return invalid("run",
                   "a mesh of one device must have a lane by name, xla or "
                   "mosaic, found none for {}",
                   to_string(options.mesh));
  }
  std::vector<LaneId> named = options.fallback;
  if (options.lane) named.push_back(*options.lane);
  for (const LaneId lane : named) {
    if (facts_of(lane).meshes) continue;
    return invalid("run", "a mesh must run on lane xla or mosaic, found {}",
                   to_string(lane));
  }
  return {};
}

// A lane that the gate keeps out runs only if it was named, not as a fallback.
Result<void> check_gate(const Prepared::State& p, LaneId id) {
  const SessionOptions& o = p.session->options;
  if (o.lane == id) return {};
  const GateRow* row = run::barred(o.gate, id, p.features, p.machine);
  if (!row) return {};
  return unavailable("dispatch",
                     "the {} lane must not be kept out to run, found: {}",
                     to_string(id), run::barred_words(*row));
}

// Starts one candidate: checks its rules, opens its lane, prepares its work.
Result<void> start(Prepared::State& p, LaneId id,
                   std::unique_ptr<lanes::LaneWork> before) {
  p.id = next_id.fetch_add(1, std::memory_order_relaxed);
  if (const auto why = run::cannot(facts_of(id), p.features)) {
    return unavailable("dispatch",
                       "the {} lane must be able to run this, found: {}",
                       to_string(id), *why);
  }
  if (auto e = check_gate(p, id); !e) return e;
  const auto lane = std::ranges::find(p.session->lanes, id, &lanes::Lane::lane);
  if (lane == p.session->lanes.end()) {
    return unavailable("dispatch", "a lane must run here, found {}",
                       to_string(id));
  }
  auto open = open_lane(*p.session, *lane, p.options);
  if (!open) return open.error();
  if (auto e = run::check_reason(p.session->options, **open); !e) return e;
  const double bytes = (*open)->bytes(p.batch.request(), p.call) +
                       lanes::sink_batch_bytes(id, p.batch, p.call);
  const auto& memory = p.session->options.memory;
  if (memory) {
    auto e = receipt::check_free("run", bytes, "the arrays", memory());
    if (!e) return e.error();
  }
  if (auto e = run::check_device_memory(p.batch, p.call, id, p.options,
                                        (*open)->place());
      !e) {
    return e.error();
  }
  double ms = 0;
  auto work = timed(
      ms, [&] { return (*open)->prepare(p.batch, p.call, std::move(before)); });
  if (!work) return work.error();
  p.lane = std::move(*open);
  p.flushes = lane->flushes;
  p.work = std::move(*work);
  const lanes::WorkFacts& did = p.work->facts();
  p.counters.add_compiles(did);
  p.counters.compile_ms = did.compile_ms;
  p.prepare_transfer_ms = did.transfer_ms;
  p.counters.prepare_ms = std::max(0.0, ms - did.compile_ms - did.transfer_ms);
  return {};
}

// Starts the candidate at p.at, or the first after it that can start. With one
// candidate the error is the lane's own.
Result<void> start_next(Prepared::State& p,
                        std::unique_ptr<lanes::LaneWork> before) {
  for (; p.at < p.candidates.size(); ++p.at) {
    auto started = start(p, p.candidates[p.at], std::move(before));
    if (started || p.candidates.size() == 1) return started;
    p.failed.push_back({p.candidates[p.at], started.error().message});
  }
  const Error none = unavailable(
      "dispatch", "a lane must start, found that none did: {}", *p.fallback());
  p.work.reset();
  p.failed.clear();
  p.at = 0;
  return none;
}

}  // namespace

Result<std::shared_ptr<lanes::OpenLane>> run::open_named(Session::State& s) {
  if (!s.options.lane) {
    return invalid("run",
                   "a session must be opened with a named lane to answer for "
                   "that lane, found none");
  }
  const auto lane =
      std::ranges::find(s.lanes, *s.options.lane, &lanes::Lane::lane);
  if (lane == s.lanes.end()) {
    return unavailable("dispatch", "a lane must run here, found {}",
                       to_string(*s.options.lane));
  }
  return open_lane(s, *lane, lane_options(s.options, {}));
}

Result<void> run::check_reason(const SessionOptions& o,
                               const lanes::OpenLane& lane) {
  if (!o.xla.lowering_reason || !o.lane || !o.fallback.empty()) return {};
  const PluginPlace* place = lane.place();
  const bool takes_tiles =
      *o.lane == LaneId::mosaic || *o.lane == LaneId::splash ||
      (*o.lane == LaneId::xla && o.xla.method != XlaMethod::dense);
  if (place && takes_tiles && chip_of_device(place->device)) return {};
  return invalid("run",
                 "a lowering reason goes with tiles of scores on a TPU, found "
                 "one for the {} lane{}",
                 to_string(*o.lane),
                 place ? " on " + on_a_line(place->device) : "");
}

Result<void> run::check_prepared(const Prepared::State& p) {
  if (p.work) return {};
  return invalid("run", "a batch must be prepared, found one that failed");
}

Result<void> run::check_says_backward(const Prepared::State& p) {
  if (p.call.backward) return {};
  return lanes::no_backward("run");
}

void run::count_forward(Prepared::State& p, const lanes::PassRun& ran) {
  p.counters.tiles_run = ran.tiles_run;
  p.counters.tiles_skipped = ran.tiles_skipped;
  p.counters.pairs_run = ran.pairs_run;
  p.counters.forward_ms = ran.run_ms;
  p.forward_transfer_ms = ran.transfer_ms;
  ++p.counters.forwards;
  p.went_back = false;
}

void run::count_backward(Prepared::State& p, const lanes::PassRun& ran) {
  p.counters.backward_ms = ran.run_ms;
  p.backward_transfer_ms = ran.transfer_ms;
  ++p.counters.backwards;
  p.went_back = true;
}

Result<void> run::check_fallback(std::span<const LaneId> order) {
  for (size_t i = 0; i < order.size(); ++i) {
    const LaneFacts& lane = facts_of(order[i]);
    if (!lane.same_meaning) {
      return invalid("dispatch",
                     "a fallback must mean the same as the request, found {}, "
                     "which computes what its artifact holds",
                     to_string(order[i]));
    }
    if (!lane.absent.empty()) {
      return invalid("dispatch",
                     "a fallback must be a lane that runs, found {}: {}",
                     to_string(order[i]), lane.absent);
    }
    if (std::ranges::count(order, order[i]) > 1) {
      return invalid("dispatch", "a fallback is named once, found {} twice",
                     to_string(order[i]));
    }
  }
  return {};
}

std::optional<std::string> Prepared::State::fallback() const {
  if (failed.empty()) return {};
  std::string out;
  for (const run::FailedLane& f : failed) {
    out += fmt::format("{}{} did not start: {}", out.empty() ? "" : "; ",
                       to_string(f.lane), f.why);
  }
  return out;
}

Session::Session(std::shared_ptr<State> state) : state_(std::move(state)) {}
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;
Session::~Session() = default;

Result<Session> run::open_session(SessionOptions options,
                                  std::span<const lanes::Lane> lanes) {
  if (auto e = run::check_fallback(options.fallback); !e) return e.error();
  if (auto e = check_mesh_lanes(options); !e) return e.error();
  if (const auto& reason = options.xla.lowering_reason) {
    if (auto e = check_lowering_reason("run", *reason); !e) return e.error();
  }
  auto state = std::make_shared<Session::State>();
  state->options = std::move(options);
  state->machine = state->options.machine;
  state->lanes = lanes;
  Session out(std::move(state));
  // A named lane without fallbacks is opened now, so that its error is early.
  const auto& named = out.state().options.lane;
  if (named && out.state().options.fallback.empty()) {
    if (auto e = run::open_named(out.state()); !e) return e.error();
  }
  return out;
}

Result<Session> Session::open(SessionOptions options) {
  return run::open_session(std::move(options), lanes::lanes());
}

Result<Choice> Session::choose(const Batch& batch,
                               const AttentionCall& call) const {
  auto read = plan::read_batch(batch, "run");
  if (!read) return read.error();
  if (auto e = check_heads(batch, call); !e) return e.error();
  const std::lock_guard lock(state_->mutex);
  return choose_lane(
      *state_,
      features_of_call(batch.request(), batch.facts(), call, state_->options),
      batch.plan());
}

Result<Prepared> Session::prepare(const Batch& batch, const AttentionCall& call,
                                  const std::optional<Choice>& chosen) const {
  const TraceSpan span("run", "prepare");
  auto read = plan::read_batch(batch, "run");
  if (!read) return read.error();
  if (auto e = run::check_dlse("run", call); !e) return e.error();
  if (auto e = check_heads(batch, call); !e) return e.error();
  // A batch above its ceilings is refused before any work.
  if (auto contract = make_contract(batch); !contract) return contract.error();
  auto p = std::make_unique<Prepared::State>(state_, batch);
  p->call = call;
  p->features =
      features_of_call(batch.request(), batch.facts(), call, state_->options);
  {
    const std::lock_guard lock(state_->mutex);
    auto choice = choose_lane(*state_, p->features, batch.plan(), chosen);
    if (!choice) return choice.error();
    p->choice = std::move(*choice);
    p->machine = *state_->machine;
  }
  p->candidates = {p->choice.lane};
  for (const LaneId lane : state_->options.fallback) {
    if (lane != p->choice.lane) p->candidates.push_back(lane);
  }
  p->options = lane_options(state_->options, p->choice);
  if (auto e = start_next(*p, nullptr); !e) return e.error();
  return Prepared(std::move(p));
}

Result<PluginPlace> Session::place() const {
  auto open = run::open_named(*state_);
  if (!open) return open.error();
  if (const PluginPlace* place = (*open)->place()) return *place;
  return invalid("run",
                 "a session must name a lane of a plugin to have a place, "
                 "found {}",
                 to_string(*state_->options.lane));
}

Prepared::Prepared(std::unique_ptr<State> state) : state_(std::move(state)) {}
Prepared::Prepared(Prepared&&) noexcept = default;
Prepared& Prepared::operator=(Prepared&&) noexcept = default;
Prepared::~Prepared() = default;

const Batch& Prepared::batch() const { return state_->batch; }
const AttentionCall& Prepared::call() const { return state_->call; }
const Choice& Prepared::choice() const { return state_->choice; }
LaneId Prepared::lane() const { return state_->candidates[state_->at]; }
std::optional<std::string> Prepared::fallback() const {
  return state_->fallback();
}

Counters Prepared::counters() const {
  const State& p = *state_;
  Counters out = p.counters;
  out.transfer_ms =
      p.prepare_transfer_ms + p.forward_transfer_ms + p.backward_transfer_ms;
  return out;
}

Result<Saved> Prepared::forward(const ForwardTensors& tensors,
                                const StopFlag* stop) {
  const TraceSpan span("run", "forward");
  State& p = *state_;
  if (auto e = run::check_prepared(p); !e) return e.error();
  if (auto e = run::check_forward_arrays(p.batch.request(), p.call, tensors);
      !e) {
    return e.error();
  }
  for (;;) {
    auto ran = p.work->forward(tensors, stop);
    if (ran) {
      run::count_forward(p, *ran);
      return Saved{tensors, p.id};
    }
    // A lane whose first pass fails counts as not started, and the next steps
    // in. Not so after a pass that succeeded, or if the caller stopped it.
    if (p.counters.forwards > 0 || p.candidates.size() == 1 ||
        ran.error().kind == ErrorKind::stopped) {
      return ran.error();
    }
    p.failed.push_back({p.candidates[p.at++], ran.error().message});
    if (auto e = start_next(p, nullptr); !e) return e.error();
  }
}

Result<void> Prepared::backward(const Saved& saved, const Gradients& gradients,
                                const StopFlag* stop) {
  const TraceSpan span("run", "backward");
  State& p = *state_;
  if (auto e = run::check_prepared(p); !e) return e;
  if (auto e = run::check_says_backward(p); !e) return e;
  if (saved.of != p.id) {
    return invalid("run",
                   "a backward pass must be handed what this batch's forward "
                   "pass gave, found another's");
  }
  if (auto e = run::check_backward_arrays(p.batch.request(), p.call,
                                          saved.tensors, gradients);
      !e) {
    return e;
  }
  auto ran = p.work->backward(saved.tensors, gradients, stop);
  if (!ran) return ran.error();
  run::count_backward(p, *ran);
  return {};
}

Result<void> Prepared::next(const Batch& batch) {
  const TraceSpan span("run", "next");
  State& p = *state_;
  std::unique_ptr<lanes::LaneWork> before = std::move(p.work);
  auto read = plan::read_batch(batch, "run");
  if (!read) return read.error();
  if (auto e = check_heads(batch, p.call); !e) return e;
  if (auto contract = make_contract(batch); !contract) return contract.error();
  const RequestFeatures features = features_of_call(
      batch.request(), batch.facts(), p.call, p.session->options);
  if (const auto why = run::cannot(facts_of(lane()), features)) {
    return unavailable("dispatch",
                       "the {} lane must be able to run this, found: {}",
                       to_string(lane()), *why);
  }
  p.features = features;
  p.batch = batch;
  p.went_back = false;
  p.counters.backward_ms = 0;
  p.backward_transfer_ms = 0;
  return start(p, lane(), std::move(before));
}

Result<std::string> Prepared::receipt(const Saved& saved,
                                      const Gradients* gradients,
                                      const SinkTelemetry* sinks) const {
  auto receipt = run::make_receipt(*this, saved, gradients, sinks);
  if (!receipt) return receipt.error();
  return receipt::receipt_json(*receipt);
}

Result<std::string> Prepared::program_text(bool backward) const {
  if (auto e = run::check_prepared(*state_); !e) return e.error();
  return state_->work->program_text(backward);
}

}  // namespace tessera
