// cli/run/kernel_tile.h: a tile that suits a kernel, where nobody said one.
#pragma once

#include <string>

#include "cli/request/flags.h"
#include "tessera/attention.h"

namespace tessera::cli {

// Who chose the tile; "" where it was not open.
using TileBy = std::string;

// Of a request that is not planned yet and leaves its tile open: that of the
// TPU kernels' table, for the keys that its own queries see in the mean, and
// for backward where the call has such a pass.
Result<TileBy> take_kernel_tile(const AttentionCall& call, Loaded& loaded);

}  // namespace tessera::cli
