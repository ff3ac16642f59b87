// run/passes.h: a call on an open session: prepared, then its passes.
#pragma once

#include <optional>

#include "tessera/session.h"

namespace tessera::run {

struct Passes {
  Prepared ready;
  Saved saved;  // of the forward pass
  std::optional<SinkTelemetry> sinks;
};

// Forward, its sink telemetry where the call wants it, and backward where the
// call has gradients.
Result<Passes> run_passes(const Session& session, const RunCall& call);

}  // namespace tessera::run
