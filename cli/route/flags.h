// cli/route/flags.h: the router's settings as flags.
#pragma once

#include "cli/command.h"
#include "request/route_text.h"

namespace tessera::cli {

using RouteFlags = request::RouteText;

void add_route_flags(Command& command, RouteFlags& flags);

}  // namespace tessera::cli
