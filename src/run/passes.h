// run/passes.h: prepares a call on an open session and runs its passes.
#pragma once

#include <optional>

#include "receipt/receipt.h"
#include "tessera/session.h"

namespace tessera::run {

struct Passes {
  Prepared ready;
  Saved saved;  // of the forward pass
  std::optional<SinkTelemetry> sinks;
};

// Runs forward, then sink telemetry if the call asks for it, then backward if
// the call has gradients.
Result<Passes> run_passes(const Session& session, const RunCall& call);
// The receipt of the passes, with sink telemetry if there is any.
Result<receipt::Receipt> receipt_of(const Passes& passes, const RunCall& call);

// Checks first_keys, and that a receipt can hold the telemetry of all
// documents. first_keys 0 asks for no telemetry.
Result<void> check_first_keys(int64_t first_keys, const Batch& batch,
                              int64_t heads);

}  // namespace tessera::run
