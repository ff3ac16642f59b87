// plan/steps.h: packed steps of a plan (the batch is already read).
#pragma once

#include "tessera/layouts.h"

namespace tessera::plan {

Result<Steps> steps_of_plan(const Plan& plan, bool transposed,
                            int64_t tiles_per_pass = 1);

}  // namespace tessera::plan
