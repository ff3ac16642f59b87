// run/run.cc: runs one call from end to end, and again to verify its receipt.
#include <utility>

#include "base/fail.h"
#include "receipt/read.h"
#include "run/features.h"
#include "run/passes.h"
#include "run/repeat.h"
#include "run/verify.h"
#include "tessera/session.h"

namespace tessera {
namespace {

// The plugin that the caller named; nothing for the default.
std::optional<std::string> own_plugin(const SessionOptions& options) {
  if (options.xla.plugin.empty()) return {};
  return options.xla.plugin;
}

RequestFeatures features_of(const RunCall& call, const SessionOptions& o) {
  return tessera::features_of(call.batch.request(), call.batch.facts(),
                              call.shape, run::call_features(call_of(call), o));
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

Result<std::vector<std::string>> verify_run(const std::string& text,
                                            const RunCall& call,
                                            const SessionOptions& options) {
  auto claim = receipt::parse_receipt(text);
  if (!claim) return claim.error();
  auto verdict = run::verify_receipt(
      *claim, [&](const receipt::Receipt& claimed) -> Result<run::SecondRun> {
        auto with =
            run::options_to_repeat(claimed, options, own_plugin(options));
        if (!with) return with.error();
        with->input_digests = !claimed.inputs.digests.empty();
        auto ran = run_attention(call, *with);
        if (!ran) return ran.error();
        auto receipt = receipt::parse_receipt(ran->receipt);
        if (!receipt) return receipt.error();
        return run::SecondRun{
            std::move(*receipt),
            run::SecondRun::Asked{features_of(call, *with),
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
