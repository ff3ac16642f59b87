// run/run.cc: one call from end to end, and the same again for its receipt.
#include <utility>

#include "base/fail.h"
#include "receipt/read.h"
#include "run/passes.h"
#include "run/receipt_parts.h"
#include "run/verify.h"
#include "tessera/session.h"

namespace tessera {
namespace {

// The one that a caller chose, rather than left as it is by default.
std::optional<std::string> own_plugin(const SessionOptions& options) {
  if (options.xla.plugin == XlaOptions().plugin) return {};
  return options.xla.plugin;
}

RequestFeatures features_of(const RunCall& call, const SessionOptions& o) {
  const AttentionCall asked = call_of(call);
  CallFeatures features;
  features.dtype = asked.dtype;
  features.sink_logits = asked.sink_logits;
  features.backward = asked.backward;
  tell_artifact(o.artifact, features);
  features.sink_telemetry = asked.sink_telemetry;
  return tessera::features_of(call.batch.request(), call.batch.facts(),
                              call.shape, features);
}

}  // namespace

AttentionCall call_of(const RunCall& call) {
  AttentionCall out;
  out.shape = call.shape;
  out.dtype = call.forward.q.dtype;
  out.sink_logits = call.forward.sink_logits.has_value();
  out.backward = call.gradients.has_value();
  out.dlse = call.gradients && !call.gradients->dlse.empty();
  out.sink_telemetry = call.first_keys != 0;
  return out;
}

Result<AttentionRun> run_attention(const RunCall& call,
                                   const SessionOptions& options) {
  auto session = Session::open(options);
  if (!session) return session.error();
  auto ran = run::run_passes(*session, call);
  if (!ran) return ran.error();
  const Prepared& ready = ran->ready;
  auto receipt = run::receipt_of(*ran, call);
  if (!receipt) return receipt.error();
  return AttentionRun{ready.choice(),
                      ready.lane(),
                      ready.fallback(),
                      ready.counters(),
                      receipt::receipt_json(*receipt),
                      std::move(ran->sinks)};
}

namespace {

// The options of the run that a receipt tells of, with its lane forced.
Result<SessionOptions> options_to_repeat(const receipt::Receipt& claimed,
                                         const SessionOptions& options) {
  if (!claimed.of_plan() || !claimed.ran()) {
    return unavailable("receipt", "a run must have run, found {}",
                       claimed.of_plan() ? "compiled only"
                       : claimed.kind == receipt::Kind::operation
                           ? "an operation"
                           : "a training run");
  }
  SessionOptions out = options;
  auto lane = parse_lane(claimed.lane.executed);
  if (!lane) return lane.error();
  out.lane = *lane;
  out.fallback.clear();
  out.input_digests = !claimed.inputs.digests.empty();
  if (*lane == LaneId::cpu && claimed.isa) {
    auto isa = parse_isa(*claimed.isa);
    if (!isa) return isa.error();
    out.cpu.isa = *isa;
    if (claimed.threads) out.cpu.threads = *claimed.threads;
  }
  if (*lane == LaneId::xla) {
    auto method = parse_xla_method(claimed.method);
    if (!method) return method.error();
    out.xla.method = *method;
  }
  out.xla.lowering_reason =
      claimed.lowering ? claimed.lowering->reason : std::nullopt;
  out.mesh = {};
  if (claimed.shards) {
    auto mesh = parse_mesh(claimed.shards->mesh);
    if (!mesh) return mesh.error();
    auto balance = parse_balance(claimed.shards->balance);
    if (!balance) return balance.error();
    out.mesh = std::move(*mesh);
    out.shards.balance = *balance;
    out.shards.uneven = claimed.shards->uneven;
  }
  if (claimed.plugin) {
    auto plugin = run::plugin_to_load(claimed, own_plugin(options));
    if (!plugin) return plugin.error();
    out.xla.plugin = std::move(*plugin);
    out.xla.device = claimed.plugin->number;
  }
  return out;
}

}  // namespace

Result<std::vector<std::string>> verify_run(const std::string& text,
                                            const RunCall& call,
                                            const SessionOptions& options) {
  auto claim = receipt::parse_receipt(text);
  if (!claim) return claim.error();
  auto verdict = run::verify_receipt(
      *claim, [&](const receipt::Receipt& claimed) -> Result<run::SecondRun> {
        auto with = options_to_repeat(claimed, options);
        if (!with) return with.error();
        auto ran = run_attention(call, *with);
        if (!ran) return ran.error();
        auto receipt = receipt::parse_receipt(ran->receipt);
        if (!receipt) return receipt.error();
        return run::SecondRun{
            std::move(*receipt),
            run::SecondRun::Asked{features_of(call, options),
                                  plan_facts(call.batch.plan())}};
      });
  if (!verdict) return verdict.error();
  std::vector<std::string> out = std::move(verdict->contradictions);
  for (const ReceiptDifference& d : verdict->wrong) {
    out.push_back(fmt::format("{} is {}, found {}", d.field,
                              d.a.empty() ? "nothing" : d.a,
                              d.b.empty() ? "nothing" : d.b));
  }
  return out;
}

}  // namespace tessera
