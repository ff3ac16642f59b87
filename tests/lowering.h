// tests/lowering.h: the reason that tests give where their tiles are small.
#pragma once

#include <optional>
#include <string>

#include "tessera/machine.h"

namespace tessera::testing {

// Where a v6e asks for one.
inline std::optional<std::string> lowering_reason(const Tile& tile) {
  if (!is_below_granule(tile, find_chip("v6e")->granule)) return {};
  return "a test of few tokens";
}

}  // namespace tessera::testing
