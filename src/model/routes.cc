// model/routes.cc: the JSON and the rules of routes.
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

std::string to_string(const LayerRoute& route) {
  return fmt::format("routed({}, {}) by {}", route.top, route.block,
                     to_string(route.rule));
}

namespace model {
namespace {

constexpr std::string_view kRoutesWhere = "model.routes";
constexpr size_t kMaxRoutes = 1024;
// The rules by which each query picks for itself.
constexpr std::array kRules = {RouteRule::kv_head, RouteRule::query_head};

// Errors call the value `name`: "routes[0]".
Result<RouteRule> read_rule(const Json& value, const std::string& name) {
  auto text = read_string(value, kRoutesWhere, name);
  if (!text) return text.error();
  for (const RouteRule rule : kRules) {
    if (to_string(rule) == *text) return rule;
  }
  return invalid(kRoutesWhere, "{} must be {} or {}, found {}", name,
                 to_string(kRules[0]), to_string(kRules[1]), in_quotes(*text));
}

Result<LayerRoute> read_route(const Json& value, const std::string& name) {
  LayerRoute out;
  if (value.is_null()) return out;
  if (!value.is_object()) {
    return invalid(kRoutesWhere,
                   "{} must be null, or an object of top, block and rule, "
                   "found {}",
                   name, describe(value));
  }
  auto e = check_fields(value, kRoutesWhere, name, {"top", "block"}, {"rule"});
  if (!e) return e.error();
  auto top =
      read_int(value["top"], kRoutesWhere, name + ".top", 1, routing::kMaxTop);
  if (!top) return top.error();
  out.top = *top;
  auto block =
      read_int(value["block"], kRoutesWhere, name + ".block", 1, kMaxTokens);
  if (!block) return block.error();
  out.block = *block;
  if (!value.contains("rule")) return out;
  auto rule = read_rule(value["rule"], name + ".rule");
  if (!rule) return rule.error();
  out.rule = *rule;
  return out;
}

}  // namespace

Result<std::vector<LayerRoute>> read_routes(const Json& value) {
  if (!value.is_array() || value.size() > kMaxRoutes) {
    return invalid(kRoutesWhere,
                   "routes must be a list of at most {}, found {}", kMaxRoutes,
                   describe(value));
  }
  std::vector<LayerRoute> out;
  for (const Json& each : value) {
    auto route = read_route(each, fmt::format("routes[{}]", out.size()));
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
      return invalid(kRoutesWhere, "a route's rule must be {} or {}, found {}",
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

}  // namespace model
}  // namespace tessera
