// fit/budget_json.h: what a budget's JSON has and others' have too.
#pragma once

#include <nlohmann/json.hpp>

#include "tessera/mosaic.h"

namespace tessera::fit {

nlohmann::json vector_memory_json(const VectorMemory& memory);

}  // namespace tessera::fit
