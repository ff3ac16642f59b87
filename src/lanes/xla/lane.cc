// lanes/xla/lane.cc: a call: its contract, its program, its arrays, its run.
#include "lanes/xla/lane.h"

#include <algorithm>
#include <charconv>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "base/fail.h"
#include "base/integers.h"
#include "base/text.h"
#include "base/timed.h"
#include "base/trace.h"
#include "lanes/program_arrays.h"
#include "lanes/tensors.h"
#include "lanes/xla/arrays.h"
#include "lanes/xla/client_options.h"
#include "lanes/xla/planned.h"
#include "mask/bind.h"
#include "pjrt/compile_cache.h"
#include "pjrt/place.h"
#include "plan/batch_state.h"
#include "tessera/layouts.h"

namespace tessera::xla {
namespace {

constexpr std::string_view kMethods[] = {"worklist", "chunked", "dense"};

// Only the worklist's length depends on the worklist; picks are an input of
// every method.
Request without_ceilings(const Request& request) {
  Request out = request;
  out.ceilings = {};
  out.ceilings.max_union = request.ceilings.max_union;
  return out;
}

// What a program is handed, by name.
class Inputs {
 public:
  void add(std::string name, const void* data) {
    data_[std::move(name)] = data;
  }
  void add(std::string name, lanes::Staged staged) {
    staged_.push_back(std::move(staged));
    add(std::move(name), staged_.back().data());
  }
  // Null where it is none of these.
  const void* of(const std::string& name) const {
    const auto at = data_.find(name);
    return at == data_.end() ? nullptr : at->second;
  }

 private:
  std::map<std::string, const void*> data_;
  std::deque<lanes::Staged> staged_;
};

Result<std::string> text_of(const Shape& shape) {
  return shape.backward ? backward_program(shape) : forward_program(shape);
}

}  // namespace

struct XlaLane::State {
  XlaOptions options;
  pjrt::Place on;
  PluginPlace place;  // the same, in words
  mutable pjrt::CompileCache cache;

  State(const XlaOptions& o, const pjrt::Place& where)
      : options(o),
        on(where),
        place(describe(where)),
        cache({.folder = o.cache_folder,
               .max_bytes = o.max_cache_bytes,
               .max_compiles = o.max_compiles}) {}

  std::string target() const {
    return fmt::format("{}:{}", on.client->platform(), on.device->kind);
  }

  Result<pjrt::Cached> program(const Planned& planned, XlaRun& run) const {
    const TraceSpan span("xla", "program");
    const auto write = [&] {
      const TraceSpan writing("xla", "write");
      return text_of(planned.shape);
    };
    auto cached = timed(run.compile_ms, [&] {
      return cache.get(*on.client, *on.device,
                       {planned.kernel.key, planned.kernel.text}, write);
    });
    if (!cached) return cached.error();
    run.contract = planned.kernel;
    run.compiles += cached->found == pjrt::Found::compiled;
    run.memory_hits += cached->found == pjrt::Found::memory;
    run.disk_hits += cached->found == pjrt::Found::disk;
    run.warnings = cached->warnings;
    return cached;
  }
};

namespace {

// One direction of a batch, ready to run. Buffers read their integers in place.
struct Pass {
  Shape shape;
  XlaRun prepared;
  std::shared_ptr<const pjrt::Loaded> program;
  Integers integers;
  std::map<std::string, pjrt::Buffer> sent;
};

Result<std::unique_ptr<Pass>> make_pass(const XlaLane::State& lane,
                                        const Batch::State& batch,
                                        const PlanContract& contract,
                                        const AttentionCall& call,
                                        bool backward) {
  auto planned = plan_call(batch.request, batch.facts, contract, call, backward,
                           lane.options.method, lane.target());
  if (!planned) return planned.error();
  auto out = std::make_unique<Pass>();
  out->shape = planned->shape;
  auto integers = make_integers(out->shape, batch.sweep.bound, batch.plan);
  if (!integers) return integers.error();
  out->integers = std::move(*integers);
  auto found = lane.program(*planned, out->prepared);
  if (!found) return found.error();
  out->program = std::move(found->program);
  auto sent = timed(out->prepared.transfer_ms, [&]() -> Result<void> {
    for (const Argument& a : arguments_of(out->shape)) {
      const auto at = out->integers.find(a.name);
      if (at == out->integers.end()) continue;
      auto buffer = pjrt::to_device(
          out->program->client(), out->program->device(),
          {dtype_of(a.type.element), a.type.dims}, at->second.data());
      if (!buffer) return buffer.error();
      out->sent.emplace(a.name, std::move(*buffer));
    }
    return {};
  });
  if (!sent) return sent.error();
  return out;
}

}  // namespace

struct XlaWork::State {
  std::shared_ptr<const XlaLane::State> lane;
  Batch batch;
  AttentionShape shape;
  std::unique_ptr<Pass> forward, backward;

  lanes::PlanSizes sizes() const { return lanes::PlanSizes::of(batch.plan()); }
  Result<XlaRun> run(const Pass& pass, const Inputs& inputs,
                     std::vector<lanes::ProgramOutput> outputs,
                     const StopFlag* stop) const;
};

Result<XlaRun> XlaWork::State::run(const Pass& pass, const Inputs& inputs,
                                   std::vector<lanes::ProgramOutput> outputs,
                                   const StopFlag* stop) const {
  XlaRun out;
  const Shape& s = pass.shape;
  int32_t tiles = 0;
  outputs.push_back({{Dtype::i32, {}}, &tiles, {}});  // the program's own count
  std::vector<pjrt::HostArray> arrays;
  for (const Argument& a : arguments_of(s)) {
    const auto sent = pass.sent.find(a.name);
    arrays.push_back({{dtype_of(a.type.element), a.type.dims},
                      inputs.of(a.name),
                      sent == pass.sent.end() ? nullptr : &sent->second});
  }
  auto ran = lanes::run_program("xla", *pass.program, arrays, outputs, stop,
                                out.transfer_ms, out.run_ms);
  if (!ran) return ran.error();
  out.contract = pass.prepared.contract;
  const Plan& plan = batch.plan();
  const int64_t all =
      plan.batch * s.heads * plan.forward.rows * plan.forward.columns;
  if (s.method == XlaMethod::worklist) {
    out.tiles_run = tiles * s.unit_heads();
    const int64_t visits = step_count(plan.forward) * (s.heads / s.plan_heads);
    out.pairs_run = visits * s.tile.q * s.tile.kv;
  } else {
    out.tiles_run = all;
    out.pairs_run = s.batch * s.heads * s.q_len * s.kv_len;
  }
  out.tiles_skipped = all - out.tiles_run;
  return out;
}

XlaWork::XlaWork(std::unique_ptr<State> state) : state_(std::move(state)) {}
XlaWork::XlaWork(XlaWork&&) noexcept = default;
XlaWork& XlaWork::operator=(XlaWork&&) noexcept = default;
XlaWork::~XlaWork() = default;

const XlaRun* XlaWork::prepared(bool backward) const {
  const auto& pass = backward ? state_->backward : state_->forward;
  return pass ? &pass->prepared : nullptr;
}

Result<std::string> XlaWork::program_text(bool backward) const {
  const auto& pass = backward ? state_->backward : state_->forward;
  if (!pass) {
    return invalid("xla", "the call must have said backward, found forward");
  }
  return text_of(pass->shape);
}

Result<XlaRun> XlaWork::forward(const ForwardTensors& t,
                                const StopFlag* stop) const {
  const TraceSpan span("xla", "forward");
  auto e = lanes::check_forward("xla", state_->sizes(), state_->shape, t);
  if (!e) return e.error();
  const Pass& pass = *state_->forward;
  if (auto fits = check_pass(pass.shape, t.q.dtype, t.sink_logits.has_value(),
                             pass.shape.dlse);
      !fits) {
    return fits.error();
  }
  const Plan& plan = state_->batch.plan();
  const Shape& s = pass.shape;
  Inputs inputs;
  inputs.add("q", lanes::Staged(t.q, {s.batch, s.heads, s.q_len, s.head_dim}));
  inputs.add("k",
             lanes::Staged(t.k, {s.batch, s.kv_heads, s.kv_len, s.head_dim}));
  inputs.add("v",
             lanes::Staged(t.v, {s.batch, s.kv_heads, s.kv_len, s.v_head_dim}));
  if (t.sink_logits) inputs.add("sink_logits", t.sink_logits->data());
  const Dims have = {plan.batch, s.heads, plan.q_len};
  const Dims rows = {s.batch, s.heads, s.q_len};
  return state_->run(
      pass, inputs,
      {lanes::to_tensor(t.out, {s.batch, s.heads, s.q_len, s.v_head_dim}),
       lanes::to_floats(t.lse, t.lse.empty() ? Dims{} : have, rows, rows)},
      stop);
}

Result<XlaRun> XlaWork::backward(const lanes::BackwardTensors& t,
                                 const StopFlag* stop) const {
  const TraceSpan span("xla", "backward");
  auto e = lanes::check_backward("xla", state_->sizes(), state_->shape, t);
  if (!e) return e.error();
  if (!state_->backward) {
    return invalid("xla", "the call must have said backward, found forward");
  }
  const Pass& pass = *state_->backward;
  if (auto fits = check_pass(pass.shape, t.q.dtype, t.sink_logits.has_value(),
                             !t.dlse.empty());
      !fits) {
    return fits.error();
  }
  const Plan& plan = state_->batch.plan();
  const Shape& s = pass.shape;
  const Dims q_dims = {s.batch, s.heads, s.q_len, s.head_dim};
  const Dims k_dims = {s.batch, s.kv_heads, s.kv_len, s.head_dim};
  const Dims v_dims = {s.batch, s.kv_heads, s.kv_len, s.v_head_dim};
  const Dims out_dims = {s.batch, s.heads, s.q_len, s.v_head_dim};
  const Dims rows = {s.batch, s.heads, s.q_len};
  const Dims have = {plan.batch, s.heads, plan.q_len};
  // A query that is not there has no probability for any score.
  constexpr float kNoQuery = std::numeric_limits<float>::infinity();
  Inputs inputs;
  inputs.add("q", lanes::Staged(t.q, q_dims));
  inputs.add("k", lanes::Staged(t.k, k_dims));
  inputs.add("v", lanes::Staged(t.v, v_dims));
  inputs.add("out", lanes::Staged(t.out, out_dims));
  inputs.add("dout", lanes::Staged(t.dout, out_dims));
  inputs.add("lse", lanes::Staged(t.lse.data(), have, rows, kNoQuery));
  if (s.dlse) inputs.add("dlse", lanes::Staged(t.dlse.data(), have, rows, 0));
  if (t.sink_logits) inputs.add("sink_logits", t.sink_logits->data());
  std::vector<lanes::ProgramOutput> outputs = {lanes::to_tensor(t.dq, q_dims),
                                               lanes::to_tensor(t.dk, k_dims),
                                               lanes::to_tensor(t.dv, v_dims)};
  if (t.sink_logits) {
    outputs.push_back({{Dtype::f32, {s.heads}}, t.dsink_logits.data(), {}});
  }
  return state_->run(pass, inputs, std::move(outputs), stop);
}

XlaLane::XlaLane(std::shared_ptr<const State> state)
    : state_(std::move(state)) {}
XlaLane::XlaLane(XlaLane&&) noexcept = default;
XlaLane& XlaLane::operator=(XlaLane&&) noexcept = default;
XlaLane::~XlaLane() = default;

const PluginPlace& XlaLane::place() const { return state_->place; }

Result<XlaLane> XlaLane::open(const XlaOptions& options) {
  auto client_options = read_client_options(options.client_options);
  if (!client_options) return client_options.error();
  auto place =
      pjrt::open_place(options.plugin, options.device, *client_options);
  if (!place) return place.error();
  return XlaLane(std::make_shared<State>(options, *place));
}

namespace {

enum class Passes : uint8_t { forward, backward, both };

Result<std::unique_ptr<XlaWork::State>> make_work(
    const std::shared_ptr<const XlaLane::State>& lane, const Batch& batch,
    const AttentionCall& call, Passes passes) {
  const TraceSpan span("xla", "prepare");
  auto read = plan::read_batch(batch, "xla");
  if (!read) return read.error();
  const lanes::PlanSizes sizes = lanes::PlanSizes::of(batch.plan());
  if (auto e = lanes::check_call("xla", sizes, call); !e) return e.error();
  auto contract = lane->options.method == XlaMethod::worklist
                      ? make_contract(batch)
                      : make_ceiling_contract(without_ceilings(batch.request()),
                                              batch.facts());
  if (!contract) return contract.error();
  auto out = std::make_unique<XlaWork::State>(
      XlaWork::State{lane, batch, call.shape, nullptr, nullptr});
  for (const bool backward : {false, true}) {
    if (passes == (backward ? Passes::forward : Passes::backward)) continue;
    auto pass = make_pass(*lane, **read, *contract, call, backward);
    if (!pass) return pass.error();
    (backward ? out->backward : out->forward) = std::move(*pass);
  }
  return out;
}

// What a call did to be prepared, and then to run.
XlaRun together(const XlaRun& prepared, XlaRun ran) {
  ran.compiles = prepared.compiles;
  ran.memory_hits = prepared.memory_hits;
  ran.disk_hits = prepared.disk_hits;
  ran.compile_ms = prepared.compile_ms;
  ran.transfer_ms += prepared.transfer_ms;
  ran.warnings = prepared.warnings;
  return ran;
}

}  // namespace

Result<XlaWork> XlaLane::prepare(const Batch& batch,
                                 const AttentionCall& call) const {
  auto state = make_work(state_, batch, call,
                         call.backward ? Passes::both : Passes::forward);
  if (!state) return state.error();
  return XlaWork(std::move(*state));
}

Result<XlaRun> XlaLane::forward(const Batch& batch, const AttentionShape& shape,
                                const ForwardTensors& t) const {
  AttentionCall call;
  call.shape = shape;
  call.dtype = t.q.dtype;
  call.sink_logits = t.sink_logits.has_value();
  auto state = make_work(state_, batch, call, Passes::forward);
  if (!state) return state.error();
  const XlaWork work(std::move(*state));
  auto ran = work.forward(t);
  if (!ran) return ran;
  return together(*work.prepared(false), std::move(*ran));
}

Result<XlaRun> XlaLane::backward(const Batch& batch,
                                 const AttentionShape& shape,
                                 const lanes::BackwardTensors& t) const {
  AttentionCall call;
  call.shape = shape;
  call.dtype = t.q.dtype;
  call.sink_logits = t.sink_logits.has_value();
  call.dlse = !t.dlse.empty();
  call.backward = true;
  auto state = make_work(state_, batch, call, Passes::backward);
  if (!state) return state.error();
  const XlaWork work(std::move(*state));
  auto ran = work.backward(t);
  if (!ran) return ran;
  return together(*work.prepared(true), std::move(*ran));
}

Result<XlaRun> XlaLane::warm(const Request& request, const Facts& present,
                             const AttentionCall& call) const {
  const bool listed = state_->options.method == XlaMethod::worklist;
  if (listed && request.ceilings.max_steps == 0) {
    return invalid("xla",
                   "to compile before the batch is known, max_steps must be "
                   "set, found 0");
  }
  auto contract = make_ceiling_contract(
      listed ? request : without_ceilings(request), present);
  if (!contract) return contract.error();
  auto planned =
      plan_call(request, present, std::move(*contract), call, call.backward,
                state_->options.method, state_->target());
  if (!planned) return planned.error();
  XlaRun out;
  auto found = state_->program(*planned, out);
  if (!found) return found.error();
  return out;
}

}  // namespace tessera::xla

namespace tessera {

std::string_view to_string(XlaMethod method) {
  return xla::kMethods[static_cast<size_t>(method)];
}

Result<XlaMethod> parse_xla_method(std::string_view text) {
  for (size_t i = 0; i < std::size(xla::kMethods); ++i) {
    if (xla::kMethods[i] == text) return static_cast<XlaMethod>(i);
  }
  return invalid("xla", "a method must be worklist, chunked or dense, found {}",
                 in_quotes(text));
}

}  // namespace tessera
