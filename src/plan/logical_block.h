// plan/logical_block.h: the size of a mask's logical block.
#pragma once

#include "tessera/plan.h"

namespace tessera::plan {

// The logical block; a side that is 0 takes the tile's size.
inline Tile block_or_tile(const Tile& logical_block, const Tile& tile) {
  return {logical_block.q != 0 ? logical_block.q : tile.q,
          logical_block.kv != 0 ? logical_block.kv : tile.kv};
}

}  // namespace tessera::plan
