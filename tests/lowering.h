// tests/lowering.h: the lowering reason that tests give for small tiles.
#pragma once

#include <optional>
#include <string>

#include "tessera/machine.h"

namespace tessera::testing {

// A reason, if a v6e requires one for this tile.
inline std::optional<std::string> lowering_reason(const Tile& tile) {
  if (!is_below_granule(tile, find_chip("v6e")->granule)) return {};
  return "a test of few tokens";
}

}  // namespace tessera::testing
