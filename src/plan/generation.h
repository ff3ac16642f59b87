// plan/generation.h: checks the name of a TPU generation.
#pragma once

#include <string_view>

#include "tessera/result.h"

namespace tessera::plan {

// Refuses all but the exact name of a known chip: "v6e", not "v6e:1x1".
Result<void> check_generation(std::string_view where, std::string_view name);

}  // namespace tessera::plan
