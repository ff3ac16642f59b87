// audit/boundaries.h: operations at which arrays change how they lie.
#pragma once

#include <optional>

#include "audit/program.h"

namespace tessera::audit {

// Of the operation of that number, where it is one.
Result<std::optional<AuditBoundary>> read_boundary(const Program& p,
                                                   uint32_t op);

}  // namespace tessera::audit
