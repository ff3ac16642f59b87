// lanes/xla/lane.cc: prepares calls: contracts, programs and their integers.
#include "lanes/xla/lane.h"

#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "base/timed.h"
#include "base/trace.h"
#include "lanes/tensors.h"
#include "lanes/xla/arrays.h"
#include "lanes/xla/client_options.h"
#include "lanes/xla/planned.h"
#include "lanes/xla/work.h"
#include "pjrt/compile_cache.h"
#include "pjrt/locate.h"
#include "pjrt/place.h"
#include "plan/batch_state.h"

namespace tessera::xla {
namespace {

constexpr std::string_view kMethods[] = {"worklist", "chunked", "dense"};

// The other methods have no worklist to limit. max_union stays, since picks are
// an input of every method.
Request without_ceilings(const Request& request) {
  Request out = request;
  out.ceilings = {};
  out.ceilings.max_union = request.ceilings.max_union;
  return out;
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

  MadeFor made_for() const {
    return {fmt::format("{}:{}", on.client->platform(), on.device->kind),
            on.device->kind, options.lowering_reason};
  }

  Result<pjrt::Cached> program(const Planned& planned, XlaRun& run) const {
    const TraceSpan span("xla", "program");
    const auto write = [&] {
      const TraceSpan writing("xla", "write");
      return program_text(planned.shape);
    };
    auto cached = timed(run.compile_ms, [&] {
      return cache.get(*on.client, *on.device,
                       {planned.kernel.key, planned.kernel.text}, write);
    });
    if (!cached) return cached.error();
    run.contract = planned.kernel;
    run.lowering = planned.lowering;
    run.add_compiles(pjrt::counts_of(cached->found));
    run.warnings = cached->warnings;
    return cached;
  }
};

namespace {

Result<std::unique_ptr<Pass>> make_pass(const XlaLane::State& lane,
                                        const Batch::State& batch,
                                        Result<Planned> planned) {
  if (!planned) return planned.error();
  auto out = std::make_unique<Pass>();
  out->shape = planned->shape;
  auto integers = make_integers(out->shape, batch.sweep.bound, batch.plan);
  if (!integers) return integers.error();
  integers->erase("first_keys");  // differs by call
  out->integers = std::move(*integers);
  auto found = lane.program(*planned, out->prepared);
  if (!found) return found.error();
  out->program = std::move(found->program);
  auto sent = timed(out->prepared.transfer_ms, [&]() -> Result<void> {
    for (const Argument& a : arguments_of(out->shape)) {
      const auto at = out->integers.find(a.name);
      if (at == out->integers.end()) continue;
      auto buffer =
          pjrt::to_device(out->program->client(), out->program->device(),
                          array_type(a.type), at->second.data());
      if (!buffer) return buffer.error();
      out->sent.emplace(a.name, std::move(*buffer));
    }
    return {};
  });
  if (!sent) return sent.error();
  return out;
}

}  // namespace

XlaLane::XlaLane(std::shared_ptr<const State> state)
    : state_(std::move(state)) {}
XlaLane::XlaLane(XlaLane&&) noexcept = default;
XlaLane& XlaLane::operator=(XlaLane&&) noexcept = default;
XlaLane::~XlaLane() = default;

const PluginPlace& XlaLane::place() const { return state_->place; }

Result<XlaLane> XlaLane::open(const XlaOptions& options) {
  auto client_options = read_client_options(options.client_options);
  if (!client_options) return client_options.error();
  auto place = pjrt::open_place(pjrt::cpu_plugin(options.plugin),
                                options.device, *client_options);
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
      XlaWork::State{lane, batch, call.shape, nullptr, nullptr, nullptr});
  const Batch::State& state = **read;
  const Request& request = state.request;
  const XlaMethod method = lane->options.method;
  for (const bool backward : {false, true}) {
    if (passes == (backward ? Passes::forward : Passes::backward)) continue;
    auto pass = make_pass(*lane, state,
                          plan_call(request, state.facts, *contract, call,
                                    backward, method, lane->made_for()));
    if (!pass) return pass.error();
    (backward ? out->backward : out->forward) = std::move(*pass);
  }
  if (call.sink_telemetry) {
    auto pass = make_pass(*lane, state,
                          plan_sinks(request, state.facts, *contract, call,
                                     method, lane->made_for()));
    if (!pass) return pass.error();
    out->sinks = std::move(*pass);
  }
  return out;
}

// The facts of a call that was prepared and then run.
XlaRun together(const XlaRun& prepared, XlaRun ran) {
  ran.add_compiles(prepared);
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
                                 const ForwardTensors& t,
                                 const Gradients& g) const {
  AttentionCall call;
  call.shape = shape;
  call.dtype = t.q.dtype;
  call.sink_logits = t.sink_logits.has_value();
  call.dlse = !g.dlse.empty();
  call.backward = true;
  auto state = make_work(state_, batch, call, Passes::backward);
  if (!state) return state.error();
  const XlaWork work(std::move(*state));
  auto ran = work.backward(t, g);
  if (!ran) return ran;
  return together(*work.prepared(true), std::move(*ran));
}

namespace {

// The plan contract of a batch that is not known yet.
Result<PlanContract> warm_contract(const XlaOptions& options,
                                   const Request& request,
                                   const Facts& present) {
  const bool listed = options.method == XlaMethod::worklist;
  if (listed && request.ceilings.max_steps == 0) {
    return invalid("xla",
                   "to compile before the batch is known, max_steps must be "
                   "set, found 0");
  }
  return make_ceiling_contract(listed ? request : without_ceilings(request),
                               present);
}

Result<XlaRun> warm_program(const XlaLane::State& lane,
                            Result<Planned> planned) {
  if (!planned) return planned.error();
  XlaRun out;
  auto found = lane.program(*planned, out);
  if (!found) return found.error();
  return out;
}

}  // namespace

Result<XlaRun> XlaLane::warm(const Request& request, const Facts& present,
                             const AttentionCall& call) const {
  auto contract = warm_contract(state_->options, request, present);
  if (!contract) return contract.error();
  return warm_program(
      *state_,
      plan_call(request, present, std::move(*contract), call, call.backward,
                state_->options.method, state_->made_for()));
}

Result<XlaRun> XlaLane::warm_sinks(const Request& request, const Facts& present,
                                   const AttentionCall& call) const {
  auto contract = warm_contract(state_->options, request, present);
  if (!contract) return contract.error();
  return warm_program(*state_,
                      plan_sinks(request, present, std::move(*contract), call,
                                 state_->options.method, state_->made_for()));
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
