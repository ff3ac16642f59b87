// plan/flex.h: FlexAttention's block lists of a plan, read by the caller.
#pragma once

#include "tessera/layouts.h"

namespace tessera::plan {

Result<FlexBlockMask> flex_of_plan(const Plan& plan, int64_t heads = 0,
                                   FlexBlockMask* before = nullptr);

}  // namespace tessera::plan
