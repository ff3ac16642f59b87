// model/routes.cc: a table of two rules, and what the host's router allows.
#include "model/routes.h"

#include <fmt/format.h>

#include <array>

#include "base/fail.h"
#include "base/text.h"
#include "route/settings.h"

namespace tessera {

RouteSettings settings_of(const LayerRoute& route) {
  RouteSettings out = moba_settings(route.top, route.block);
  out.rule = route.rule;
  return out;
}

namespace model {
namespace {

constexpr std::string_view kWhere = "model";
constexpr size_t kMaxRoutes = 1024;
// Those whose queries pick each for itself.
constexpr std::array kRules = {RouteRule::kv_head, RouteRule::query_head};

Result<RouteRule> read_rule(const Json& value) {
  auto text = read_string(value, kWhere, "rule");
  if (!text) return text.error();
  for (const RouteRule rule : kRules) {
    if (to_string(rule) == *text) return rule;
  }
  return invalid(kWhere, "a route's rule must be {} or {}, found {}",
                 to_string(kRules[0]), to_string(kRules[1]), in_quotes(*text));
}

Result<LayerRoute> read_route(const Json& value) {
  LayerRoute out;
  if (value.is_null()) return out;
  if (!value.is_object() || !value.contains("top") ||
      !value.contains("block")) {
    return invalid(kWhere,
                   "a route must be null, or an object of top, block and "
                   "rule, found {}",
                   describe(value));
  }
  for (const auto& [name, each] : value.items()) {
    if (name == "rule") {
      auto rule = read_rule(each);
      if (!rule) return rule.error();
      out.rule = *rule;
      continue;
    }
    if (name != "top" && name != "block") {
      return invalid(kWhere, "a route has no field of that name, found {}",
                     in_quotes(name));
    }
    const bool top = name == "top";
    auto read = read_int(each, kWhere, name, 1,
                         top ? routing::kMaxTop : int64_t{kMaxTokens});
    if (!read) return read.error();
    (top ? out.top : out.block) = *read;
  }
  return out;
}

}  // namespace

Result<std::vector<LayerRoute>> read_routes(const Json& value) {
  if (!value.is_array() || value.size() > kMaxRoutes) {
    return invalid(kWhere, "routes must be a list of at most {}, found {}",
                   kMaxRoutes, describe(value));
  }
  std::vector<LayerRoute> out;
  for (const Json& each : value) {
    auto route = read_route(each);
    if (!route) return route.error();
    out.push_back(*route);
  }
  return out;
}

Json to_json(const std::vector<LayerRoute>& routes) {
  Json out = Json::array();
  for (const LayerRoute& route : routes) {
    out.push_back(route.top == 0 ? Json()
                                 : Json{{"top", route.top},
                                        {"block", route.block},
                                        {"rule", to_string(route.rule)}});
  }
  return out;
}

Result<void> check_routes(const std::vector<LayerRoute>& routes) {
  for (const LayerRoute& route : routes) {
    if (route == LayerRoute{}) continue;
    if (route.rule == RouteRule::query_tile) {
      return invalid(kWhere, "a route's rule must be {} or {}, found {}",
                     to_string(kRules[0]), to_string(kRules[1]),
                     to_string(route.rule));
    }
    auto e = routing::check_settings(settings_of(route));
    if (!e) return e;
  }
  return {};
}

Result<Mask> routed_mask(const Mask& mask, const LayerRoute& route) {
  return make_mask(Expr(mask.expr) & routed(route.top, route.block));
}

int64_t picking_heads(const LayerRoute& route, int64_t heads,
                      int64_t kv_heads) {
  if (route.top == 0) return 1;
  return route.rule == RouteRule::kv_head ? kv_heads : heads;
}

std::string route_text(const LayerRoute& route) {
  return fmt::format("routed({}, {}) by {}", route.top, route.block,
                     to_string(route.rule));
}

}  // namespace model
}  // namespace tessera
