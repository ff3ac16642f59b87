// cli/route/planned.h: the plan of a request whose picks, if its mask needs
// any, are routed first.
#pragma once

#include "request/load.h"
#include "request/route_flags.h"

namespace tessera::cli {

// Plans the request unless its plan was loaded. Warnings go to stderr.
Result<request::Planned> plan_loaded(request::Loaded loaded);
Result<request::Planned> load_planned(const request::RequestFlags& flags,
                                      const request::RouteFlags& route = {});

}  // namespace tessera::cli
