// plan/well_formed.h: may a plan's lists be indexed by what they say? Derived
// layouts ask before they do.
#pragma once

#include <string_view>

#include "tessera/plan.h"
#include "tessera/result.h"

namespace tessera::plan {

// Row starts rise to the number of entries, columns ascend inside the grid and
// classes are partial or full.
Result<void> check_worklist(const Worklist& w, std::string_view where);

// Both lists are well formed and have the plan's sizes.
Result<void> check_plan(const Plan& plan, std::string_view where);

}  // namespace tessera::plan
