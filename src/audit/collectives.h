// audit/collectives.h: the data that a program's devices send each other.
#pragma once

#include <optional>
#include <string_view>

#include "audit/arrays.h"
#include "audit/ops.h"

namespace tessera::audit {

// Whether the name is that of a collective: "stablehlo.all_gather".
bool is_collective(std::string_view op_name);

// The collective at `op` of a program for `devices`, or nothing.
Result<std::optional<AuditCollective>> read_collective(const Module& m,
                                                       const Op& op,
                                                       int64_t devices);

}  // namespace tessera::audit
