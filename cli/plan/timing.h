// cli/plan/timing.h: what planning costs, measured the way every command quotes
// it.
#pragma once

#include <cstdint>
#include <functional>

#include "tessera/plan.h"

namespace tessera::cli {

// The least of several runs: until it has settled or patience is over.
Result<int64_t> least_ns(const std::function<Result<void>()>& work);

// Least time of several runs of the planner into reused memory: from raw ids to
// both lists, validation included.
Result<int64_t> best_plan_ns(const Request& request, const Facts& facts);

}  // namespace tessera::cli
