// cli/route/drawn_inputs.h: q and k that are drawn for the router's sake.
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

// Clusters are the settings' tiles and blocks.
request::Clusters clusters_of(const request::DrawnPicks& drawn,
                              const RouteSettings& settings);

struct DrawnArrays {
  request::Array q, k;
};
// The arrays, and what routing makes of them, must fit the memory that is
// free.
Result<DrawnArrays> draw_arrays(const DrawnInputs& inputs,
                                const RouteSettings& settings,
                                const Request& request, const Facts& facts,
                                int threads);

}  // namespace tessera::cli
