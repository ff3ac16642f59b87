// run/passes.h: a call on an open session: prepared, then its passes.
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

// Forward, its sink telemetry where the call wants it, and backward where the
// call has gradients.
Result<Passes> run_passes(const Session& session, const RunCall& call);
// What they did, sink telemetry too.
Result<receipt::Receipt> receipt_of(const Passes& passes, const RunCall& call);

// Whether a receipt can hold telemetry of first_keys; 0 asks for none.
Result<void> check_first_keys(int64_t first_keys, const Batch& batch,
                              int64_t heads);

}  // namespace tessera::run
