// plan/make_plan.h: makes worklists from bound facts. Code other than the
// planner and its tests makes plans through a Batch.
#pragma once

#include "mask/sweep.h"
#include "tessera/plan.h"

namespace tessera::plan {

// Plans into `plan` and reuses its memory; unchanged sizes allocate nothing. On
// an error `plan` is unspecified.
Result<void> plan_sweep(const mask::Sweep& sweep, Plan& plan);

Result<Plan> make_plan(const Request& request, const Facts& facts);

}  // namespace tessera::plan
