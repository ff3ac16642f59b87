// plan/stoppable.h: planning that the caller can stop, for entry points that
// must handle signals.
#pragma once

#include "base/stopped.h"
#include "mask/sweep.h"
#include "tessera/batch.h"

namespace tessera::plan {

// Like OwnedBatch::make and OwnedBatch::route, but stoppable.
Result<OwnedBatch> make_batch(Request request, OwnedFacts facts,
                              const Stopped& stopped);
Result<OwnedBatch> route_batch(Request request, OwnedFacts facts,
                               const RouteInputs& inputs,
                               const RouteSettings& settings,
                               const RouteOptions& options,
                               const Stopped& stopped);

// Like plan_sweep of make_plan.h, but stoppable.
Result<void> plan_sweep(const mask::Sweep& sweep, Plan& plan,
                        const Stopped& stopped);

}  // namespace tessera::plan
