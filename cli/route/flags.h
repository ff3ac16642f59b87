// cli/route/flags.h: the router's settings as flags.
#pragma once

#include "cli/command.h"
#include "request/route_flags.h"

namespace tessera::cli {

void add_route_flags(Command& command, request::RouteFlags& flags);

}  // namespace tessera::cli
