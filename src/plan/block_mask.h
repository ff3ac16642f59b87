// plan/block_mask.h: whether a block mask's sizes are what its cells hold.
#pragma once

#include "tessera/layouts.h"

namespace tessera::plan {

Result<void> check_block_mask(const BlockMask& mask);

}  // namespace tessera::plan
