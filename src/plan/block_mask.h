// plan/block_mask.h: checks that a block mask's sizes match its cells.
#pragma once

#include "tessera/layouts.h"

namespace tessera::plan {

Result<void> check_block_mask(const BlockMask& mask);

}  // namespace tessera::plan
