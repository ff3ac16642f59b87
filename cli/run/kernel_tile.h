// cli/run/kernel_tile.h: a tile that suits a kernel, where nobody said one.
#pragma once

#include <string>

#include "request/load.h"
#include "tessera/attention.h"
#include "tessera/machine.h"
#include "tessera/session.h"

namespace tessera::cli {

// What the session's named lane makes its kernels for, "v6e:1x1"; empty where
// it does not start, which is told when it is to run.
std::string target_here(const Session& session);

// Who chose the tile; "" where it was not open.
using TileBy = std::string;

// Of a request that is not planned yet and leaves its tile open: that of the
// TPU kernels' table, for the keys that its own queries see in the mean, and
// for backward where the call has such a pass, as far as the vector memory of
// the target, "v6e:1x1", holds it, by kernels of these options.
Result<TileBy> take_kernel_tile(const AttentionCall& call,
                                const std::string& target,
                                const XlaOptions& options,
                                request::Loaded& loaded);

}  // namespace tessera::cli
