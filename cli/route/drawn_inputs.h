// cli/route/drawn_inputs.h: draws q and k for the router.
#pragma once

#include "request/clustered_inputs.h"
#include "request/drawn_picks.h"
#include "tessera/plan.h"
#include "tessera/route.h"

namespace tessera::cli {

struct DrawnInputs : request::DrawnPicks {
  Dtype dtype = Dtype::f32;
  request::Layout layout = request::Layout::bhsd;
};

// The sizes of clusters: query tiles and blocks of the settings.
request::Clusters clusters_of(const request::DrawnPicks& drawn,
                              const RouteSettings& settings);

struct DrawnArrays {
  request::Array q, k;
};
// Draws the arrays. An error if they and the router's memory exceed the free
// memory.
Result<DrawnArrays> draw_arrays(const DrawnInputs& inputs,
                                const RouteSettings& settings,
                                const Request& request, const Facts& facts,
                                int threads);

}  // namespace tessera::cli
