// schedule/stalls.h: the cycles in which a kernel issues nothing, because a
// result that it needs is on its way.
#pragma once

#include <string_view>

#include "schedule/bundles.h"

namespace tessera::schedule {

// libtpu's last schedule (<name>-NN-packed-bundles-post-ra.txt) has a bundle a
// cycle, empty ones where nothing can be issued. The final bundles leave most
// of these out, since the hardware waits by itself. Both dumps name the same
// regions where they start: what lies between two starts is shorter in the
// final bundles by its stalls, which go to the bundle in its middle.
Result<void> add_stalls(std::string_view packed, KernelText& kernel);

}  // namespace tessera::schedule
