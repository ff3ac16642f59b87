// schedule/stalls.h: the cycles in which a kernel issues nothing because it
// waits for a result.
#pragma once

#include <string_view>

#include "schedule/bundles.h"

namespace tessera::schedule {

// libtpu's last schedule (<name>-NN-packed-bundles-post-ra.txt) has a bundle
// for each cycle, empty if nothing can be issued. The final bundles leave out
// most empty ones, since the hardware waits by itself. Both dumps mark where
// the same regions start. Between two such starts, the final bundles are
// shorter by the stalls, which are added to the bundle in the middle.
Result<void> add_stalls(std::string_view packed, KernelText& kernel);

}  // namespace tessera::schedule
