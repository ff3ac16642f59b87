// plan/well_formed.h: checks that a plan's lists are safe to index. Derived
// layouts call these checks first.
#pragma once

#include <string_view>

#include "tessera/plan.h"
#include "tessera/result.h"

namespace tessera::plan {

// Checks that row starts rise to the number of entries, columns ascend inside
// the grid and classes are partial or full.
Result<void> check_worklist(const Worklist& w, std::string_view where);

// Checks that both lists are well formed and have the plan's sizes.
Result<void> check_plan(const Plan& plan, std::string_view where);

}  // namespace tessera::plan
