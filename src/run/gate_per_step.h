// run/gate_per_step.h: whether a kernel needs a choice of shape each step.
#pragma once

#include <vector>

#include "run/gate_cases.h"
#include "tessera/batch.h"
#include "tessera/session.h"

namespace tessera::run {

// Two batches of one contract: of the case, and with its documents elsewhere.
// None where it has no documents, for then all its batches are one.
Result<std::vector<OwnedBatch>> two_steps(const GateCase& c);

// Whether the second, prepared after the first, is run by another program.
Result<bool> needs_shape_per_step(const GateCase& c, const Session& session);

}  // namespace tessera::run
