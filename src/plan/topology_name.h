// plan/topology_name.h: the number of chips in a target's name.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tessera/result.h"

namespace tessera::plan {

// 4 for "v6e:2x2" and for "v5p:2x2x1". Nothing unless the name has two or three
// sides of 1 or more.
std::optional<int64_t> chips_of(std::string_view target);

// A target may have a name that this library does not know. In every name a
// side that is a number must be at least 1, since libtpu divides by each side.
Result<void> check_sides(std::string_view where, std::string_view target);

}  // namespace tessera::plan
