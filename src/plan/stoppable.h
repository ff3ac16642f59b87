// plan/stoppable.h: batches whose making the caller can end: for a door that
// has to look for signals.
#pragma once

#include "base/stopped.h"
#include "mask/sweep.h"
#include "tessera/batch.h"

namespace tessera::plan {

// As OwnedBatch::make and OwnedBatch::route.
Result<OwnedBatch> make_batch(Request request, OwnedFacts facts,
                              const Stopped& stopped);
Result<OwnedBatch> route_batch(Request request, OwnedFacts facts,
                               const RouteInputs& inputs,
                               const RouteSettings& settings,
                               const RouteOptions& options,
                               const Stopped& stopped);

// As plan_sweep of make_plan.h.
Result<void> plan_sweep(const mask::Sweep& sweep, Plan& plan,
                        const Stopped& stopped);

}  // namespace tessera::plan
