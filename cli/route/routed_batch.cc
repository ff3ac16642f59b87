// cli/route/routed_batch.cc: makes the picks of a request from their source.
#include "cli/route/routed_batch.h"

#include <utility>

#include "base/fail.h"
#include "cli/route/drawn_inputs.h"
#include "cli/warnings.h"
#include "receipt/machine.h"

namespace tessera::cli {

Result<OwnedBatch> route_batch(const request::RouteFlags& flags,
                               const request::PickSource& source,
                               RouteInputs arrays, const RouteOptions& options,
                               const request::Resolved& resolved) {
  auto settings = read_route_settings(flags, resolved.request);
  if (!settings) return settings.error();
  DrawnArrays drawn;
  if (source.drawn) {
    auto made = draw_arrays({*source.drawn}, *settings, resolved.request,
                            resolved.facts.view(), options.threads);
    if (!made) return made.error();
    drawn = std::move(*made);
    arrays.q = std::as_const(drawn.q).view();
    arrays.k = std::as_const(drawn.k).view();
  }
  source.file.add_to(arrays);
  if (!arrays.q) {
    if (auto e = check_complete(source); !e) return e.error();
  }
  RouteOptions within = options;
  within.memory = receipt::available_memory();
  auto batch = OwnedBatch::route(resolved.request, resolved.facts, arrays,
                                 *settings, within);
  if (batch) print_warnings(batch->routing()->warnings);
  return batch;
}

Result<void> take_picks(const request::RouteFlags& route,
                        request::Loaded& loaded) {
  if (!loaded.source) return {};
  auto batch = route_batch(route, *loaded.source, {}, {}, loaded.resolved);
  if (!batch) return batch.error();
  loaded.saved = std::move(*batch);
  loaded.source.reset();
  return {};
}

}  // namespace tessera::cli
