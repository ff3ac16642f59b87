// route/stoppable.h: routing that the caller can stop.
#pragma once

#include "base/stopped.h"
#include "tessera/route.h"

namespace tessera::routing {

// Like tessera::route, but stoppable.
Result<RouteResult> route(const Request& request, const Facts& facts,
                          const RouteInputs& inputs,
                          const RouteSettings& settings,
                          const RouteOptions& options, const Stopped& stopped);

}  // namespace tessera::routing
