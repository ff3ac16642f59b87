// cli/request/flags.h: the request flags that most commands share.
#pragma once

#include "cli/command.h"
#include "cli/route/flags.h"
#include "cli/route/planned.h"
#include "cli/route/routed_batch.h"
#include "cli/warnings.h"
#include "request/load.h"

namespace tessera::cli {

// As plan/ and shard/ call them.
using request::Loaded;
using request::Planned;
using request::RequestFlags;
using request::RouteFlags;

// `target_help`: what --target is for, where it is not the default.
void add_request_flags(Command& command, request::RequestFlags& flags,
                       const char* target_help = nullptr);

}  // namespace tessera::cli
