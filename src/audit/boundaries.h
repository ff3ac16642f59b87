// audit/boundaries.h: operations at which the sharding of arrays changes.
#pragma once

#include <optional>

#include "audit/program.h"

namespace tessera::audit {

// The boundary at operation `op`; nothing if it is not a boundary.
Result<std::optional<AuditBoundary>> read_boundary(const Program& p,
                                                   uint32_t op);

}  // namespace tessera::audit
