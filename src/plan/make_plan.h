// plan/make_plan.h: bound facts to worklists. Outside the planner and its tests
// a Batch is what makes plans.
#pragma once

#include "mask/sweep.h"
#include "tessera/plan.h"

namespace tessera::plan {

// Into a plan whose memory is reused; unchanged sizes allocate nothing. On an
// error `plan` is unspecified.
Result<void> plan_sweep(const mask::Sweep& sweep, Plan& plan);

Result<Plan> make_plan(const Request& request, const Facts& facts);

}  // namespace tessera::plan
