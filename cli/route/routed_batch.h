// cli/route/routed_batch.h: the picks of a routed(...) mask: given in a file,
// drawn, or of the router over a command's own q and k.
#pragma once

#include "request/load.h"
#include "request/route_flags.h"
#include "tessera/batch.h"
#include "tessera/route.h"

namespace tessera::cli {

// Routes, or takes given picks in at legality, and plans. The router's warnings
// go to stderr. `arrays` has the command's q and k, where it has any.
Result<OwnedBatch> route_batch(const request::RouteFlags& flags,
                               const request::PickSource& source,
                               RouteInputs arrays, const RouteOptions& options,
                               const request::Resolved& resolved);

// Routes and plans, where there are no arrays to route by.
Result<void> take_picks(const request::RouteFlags& route,
                        request::Loaded& loaded);

}  // namespace tessera::cli
