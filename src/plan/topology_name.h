// plan/topology_name.h: the chips that a target's name asks for.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tessera/result.h"

namespace tessera::plan {

// 4 of "v6e:2x2", or of "v5p:2x2x1". Nothing where it does not read so: two or
// three sides from 1 on.
std::optional<int64_t> chips_of(std::string_view target);

// The vendor knows names that we do not. In any of them a side that is a number
// must be from 1 on: libtpu divides by each.
Result<void> check_sides(std::string_view where, std::string_view target);

}  // namespace tessera::plan
