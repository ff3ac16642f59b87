// run/run.cc: one call from end to end, and the same again for its receipt.
#include <utility>

#include "base/fail.h"
#include "receipt/read.h"
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
  features.bridge_artifact = o.artifact.has_value();
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
  return out;
}

Result<AttentionRun> run_attention(const RunCall& call,
                                   const SessionOptions& options) {
  auto session = Session::open(options);
  if (!session) return session.error();
  auto ready = session->prepare(call.batch, call_of(call));
  if (!ready) return ready.error();
  auto saved = ready->forward(call.forward);
  if (!saved) return saved.error();
  const Gradients* const gradients =
      call.gradients ? &*call.gradients : nullptr;
  if (gradients) {
    if (auto e = ready->backward(*saved, *gradients); !e) return e.error();
  }
  auto receipt = ready->receipt(*saved, gradients);
  if (!receipt) return receipt.error();
  return AttentionRun{ready->choice(), ready->lane(), ready->fallback(),
                      ready->counters(), std::move(*receipt)};
}

Result<std::vector<std::string>> verify_run(const std::string& text,
                                            const RunCall& call,
                                            const SessionOptions& options) {
  auto receipt = read_receipt(text);
  if (!receipt) return receipt.error();
  const Json& claimed = *receipt;
  std::vector<std::string> out;
  if (auto e = check_digest(claimed); !e) return std::vector{e.error().message};
  for (std::string& c : contradictions(claimed)) out.push_back(std::move(c));
  // What contradicts itself need not run.
  if (!out.empty()) return out;
  if (claimed["lane"]["executed"].is_null()) {
    return unavailable("receipt", "a run must have run, found compiled only");
  }
  SessionOptions again = options;
  auto lane = parse_lane(claimed["lane"]["executed"].get<std::string>());
  if (!lane) return lane.error();
  again.lane = *lane;
  again.fallback.clear();
  again.input_digests = !claimed["inputs"]["digests"].empty();
  if (*lane == LaneId::cpu && claimed["isa"].is_string()) {
    auto isa = parse_isa(claimed["isa"].get<std::string>());
    if (!isa) return isa.error();
    again.cpu.isa = *isa;
    if (claimed["threads"].is_number()) again.cpu.threads = claimed["threads"];
  }
  if (*lane == LaneId::xla && claimed["method"].is_string()) {
    auto method = parse_xla_method(claimed["method"].get<std::string>());
    if (!method) return method.error();
    again.xla.method = *method;
  }
  if (claimed["plugin"].is_object()) {
    auto plugin = plugin_to_load(claimed, own_plugin(options));
    if (!plugin) return plugin.error();
    again.xla.plugin = std::move(*plugin);
    again.xla.device = claimed["plugin"]["number"];
  }
  auto ran = run_attention(call, again);
  if (!ran) return ran.error();
  const RunsCompared compared =
      compare_runs(claimed, Json::parse(ran->receipt),
                   features_of(call, options), plan_facts(call.batch.plan()));
  for (const ReceiptDifference& d : compared.wrong) {
    out.push_back(fmt::format("{} is {}, found {}", d.field,
                              d.a.empty() ? "nothing" : d.a,
                              d.b.empty() ? "nothing" : d.b));
  }
  return out;
}

}  // namespace tessera
