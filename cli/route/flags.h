// cli/route/flags.h: the router's settings as flags.
#pragma once

#include <optional>
#include <string>

#include "cli/command.h"
#include "tessera/route.h"

namespace tessera::cli {

// As typed.
struct RouteFlags {
  std::optional<std::string> rule, compression, stride, query_tile, kv_tile,
      sink_blocks, meta_ratio, top_metas, union_by, meaning;
  bool hierarchical = false;
  bool strict = false;

  bool operator==(const RouteFlags&) const = default;
};

void add_route_flags(Command& command, RouteFlags& flags);

// With top and block of the request's masks; settings that fit each other.
Result<RouteSettings> read_route_settings(const RouteFlags& flags,
                                          const Request& request);

}  // namespace tessera::cli
