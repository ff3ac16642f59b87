// fit/budget_json.h: JSON that budgets share with other reports.
#pragma once

#include <nlohmann/json.hpp>

#include "tessera/mosaic.h"

namespace tessera::fit {

nlohmann::json vector_memory_json(const VectorMemory& memory);

}  // namespace tessera::fit
