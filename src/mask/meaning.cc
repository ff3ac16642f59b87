// mask/meaning.cc: names of the route meanings.
#include "base/fail.h"
#include "base/text.h"
#include "tessera/facts.h"

namespace tessera {

std::string_view to_string(RouteMeaning meaning) {
  return meaning == RouteMeaning::exact ? "exact" : "union";
}

Result<RouteMeaning> parse_route_meaning(std::string_view text) {
  if (text == "exact") return RouteMeaning::exact;
  if (text == "union") return RouteMeaning::tile_union;
  return invalid("route", "a meaning must be exact or union, found {}",
                 in_quotes(text));
}

}  // namespace tessera
