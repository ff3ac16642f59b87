// plan/generation.h: a generation of TPUs by its name.
#pragma once

#include <string_view>

#include "tessera/result.h"

namespace tessera::plan {

// The whole name of a chip that is known: "v6e", not "v6e:1x1".
Result<void> check_generation(std::string_view where, std::string_view name);

}  // namespace tessera::plan
