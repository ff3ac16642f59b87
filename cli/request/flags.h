// cli/request/flags.h: the request flags that most commands share.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/route/routed_batch.h"
#include "request/load.h"

namespace tessera::cli {

using request::Asked;
using request::Lengths;
using request::Loaded;
using request::Planned;
using request::Resolved;
using RequestFlags = request::Typed;

// `target_help`: what --target is for, where it is not the default.
void add_request_flags(Command& command, RequestFlags& flags,
                       const char* target_help = nullptr);

// Plans what is not saved; warnings go to stderr.
Result<Planned> plan_loaded(Loaded loaded);
Result<Planned> load_planned(const RequestFlags& flags,
                             const RouteFlags& route = {});
void print_warnings(const std::vector<std::string>& warnings);

// To stderr; where nobody can read it, it is lost.
void print_error(const std::string& text);

}  // namespace tessera::cli
