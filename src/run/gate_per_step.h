// run/gate_per_step.h: whether a kernel needs another program at each step.
#pragma once

#include <vector>

#include "run/gate_cases.h"
#include "tessera/batch.h"
#include "tessera/session.h"

namespace tessera::run {

// Two batches of one contract: the case's own, and one whose documents begin at
// other tokens. Empty if the case has no documents: all its batches are equal.
Result<std::vector<OwnedBatch>> two_steps(const GateCase& c);

// Whether preparing the second batch after the first compiles another program.
Result<bool> needs_shape_per_step(const GateCase& c, const Session& session);

}  // namespace tessera::run
