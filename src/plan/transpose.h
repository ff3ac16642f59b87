// plan/transpose.h: exchanges the rows and columns of a worklist.
#pragma once

#include "tessera/plan.h"

namespace tessera::plan {

// Transposes `w` into `out` and reuses its memory.
void transpose(const Worklist& w, Worklist& out);

}  // namespace tessera::plan
