// audit/collectives.h: what the devices of a program send each other.
#pragma once

#include <optional>
#include <string_view>

#include "audit/arrays.h"
#include "audit/ops.h"

namespace tessera::audit {

// Whether it is one: "stablehlo.all_gather".
bool is_collective(std::string_view op_name);

// Of a program for so many devices, where the operation is one.
Result<std::optional<AuditCollective>> read_collective(const Module& m,
                                                       const Op& op,
                                                       int64_t devices);

}  // namespace tessera::audit
