// kernels/blocks/block_mask.h: makes both worklists of a block mask with a
// given variant.
#pragma once

#include "kernels/blocks/blocks.h"
#include "tessera/layouts.h"

namespace tessera::kernels {

// worklists_of_blocks() for a mask whose sizes are already checked.
Result<void> make_block_lists(const BlockMask& mask, int64_t max_tiles,
                              const BlockVariant& variant, BlockLists& lists);

}  // namespace tessera::kernels
