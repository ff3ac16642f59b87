// cli/route/planned.cc: loads, routes and plans, and prints warnings.
#include "cli/route/planned.h"

#include <utility>

#include "cli/route/routed_batch.h"
#include "cli/warnings.h"
#include "tessera/batch.h"

namespace tessera::cli {

Result<request::Planned> plan_loaded(request::Loaded loaded) {
  auto planned = make_planned(std::move(loaded));
  if (planned) print_warnings(make_warnings(planned->batch));
  return planned;
}

Result<request::Planned> load_planned(const request::RequestFlags& flags,
                                      const request::RouteFlags& route) {
  auto loaded = load_request(flags, {}, route);
  if (!loaded) return loaded.error();
  if (auto e = take_picks(route, *loaded); !e) return e.error();
  return plan_loaded(std::move(*loaded));
}

}  // namespace tessera::cli
