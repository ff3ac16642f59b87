// cli/route/routed_batch.h: the picks of a routed(...) mask: from a file,
// drawn, or computed by the router from a command's q and k.
#pragma once

#include "request/load.h"
#include "request/route_flags.h"
#include "tessera/batch.h"
#include "tessera/route.h"

namespace tessera::cli {

// Routes and plans; given picks enter the router at legality. The router's
// warnings go to stderr. `arrays` has the command's q and k, if any.
Result<OwnedBatch> route_batch(const request::RouteFlags& flags,
                               const request::PickSource& source,
                               RouteInputs arrays, const RouteOptions& options,
                               const request::Resolved& resolved);

// Routes and plans for a command without q and k.
Result<void> take_picks(const request::RouteFlags& route,
                        request::Loaded& loaded);

}  // namespace tessera::cli
