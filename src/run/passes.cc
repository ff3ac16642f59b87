// run/passes.cc: prepared once, forward, and backward.
#include "run/passes.h"

#include <utility>

namespace tessera::run {

Result<Passes> run_passes(const Session& session, const RunCall& call) {
  auto ready = session.prepare(call.batch, call_of(call));
  if (!ready) return ready.error();
  auto saved = ready->forward(call.forward);
  if (!saved) return saved.error();
  std::optional<SinkTelemetry> sinks;
  if (call.first_keys != 0) {
    auto told = ready->sink_telemetry(*saved, call.first_keys);
    if (!told) return told.error();
    sinks = std::move(*told);
  }
  if (call.gradients) {
    auto e = ready->backward(*saved, *call.gradients);
    if (!e) return e.error();
  }
  return Passes{std::move(*ready), *saved, std::move(sinks)};
}

}  // namespace tessera::run
