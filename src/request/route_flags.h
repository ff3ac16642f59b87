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

// The settings, with top and block from the request's masks. Settings that do
// not fit each other are an error.
Result<RouteSettings> read_route_settings(const RouteFlags& text,
                                          const Request& request);

}  // namespace tessera::request
