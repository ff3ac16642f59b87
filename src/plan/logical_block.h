// plan/logical_block.h: the size in which a mask is thought of.
#pragma once

#include "tessera/plan.h"

namespace tessera::plan {

// Where a side of the logical block is 0, the tile's stands for it.
inline Tile block_or_tile(const Tile& logical_block, const Tile& tile) {
  return {logical_block.q != 0 ? logical_block.q : tile.q,
          logical_block.kv != 0 ? logical_block.kv : tile.kv};
}

}  // namespace tessera::plan
