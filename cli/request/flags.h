// cli/request/flags.h: the request flags that most commands share.
#pragma once

#include "cli/command.h"
#include "request/load.h"

namespace tessera::cli {

// `target_help` replaces the default help of --target.
void add_request_flags(Command& command, request::RequestFlags& flags,
                       const char* target_help = nullptr);

}  // namespace tessera::cli
