// kernels/blocks/block_mask.h: a block mask to both worklists by one variant.
#pragma once

#include "kernels/blocks/blocks.h"
#include "tessera/layouts.h"

namespace tessera::kernels {

// As worklists_of_blocks, of a mask whose sizes were checked.
Result<void> make_block_lists(const BlockMask& mask, int64_t max_tiles,
                              const BlockVariant& variant, BlockLists& lists);

}  // namespace tessera::kernels
