// route/stoppable.h: routing that the caller can end.
#pragma once

#include "base/stopped.h"
#include "tessera/route.h"

namespace tessera::routing {

// As tessera::route.
Result<RouteResult> route(const Request& request, const Facts& facts,
                          const RouteInputs& inputs,
                          const RouteSettings& settings,
                          const RouteOptions& options, const Stopped& stopped);

}  // namespace tessera::routing
