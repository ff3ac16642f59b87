// plan/transpose.h: exchanges the rows and columns of a worklist.
#pragma once

#include "tessera/plan.h"

namespace tessera::plan {

// Into memory that is reused.
void transpose(const Worklist& w, Worklist& out);

}  // namespace tessera::plan
