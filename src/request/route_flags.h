// request/route_flags.h: the router's settings as they are typed.
#pragma once

#include <optional>
#include <string>

#include "tessera/plan.h"
#include "tessera/route.h"

namespace tessera::request {

// Each field in the syntax of its flag.
struct RouteFlags {
  std::optional<std::string> rule, compression, stride, query_tile, kv_tile,
      sink_blocks, meta_ratio, top_metas, union_by, meaning;
  bool hierarchical = false;
  bool strict = false;

  bool operator==(const RouteFlags&) const = default;
};

// With top and block of the request's masks; settings that fit each other.
Result<RouteSettings> read_route_settings(const RouteFlags& text,
                                          const Request& request);

}  // namespace tessera::request
