// cli/route/drawn_inputs.h: q and k that are drawn for the router's sake.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "cli/data/clustered_inputs.h"
#include "tessera/plan.h"
#include "tessera/route.h"

namespace tessera::cli {

struct DrawnInputs {
  int64_t heads = 1, kv_heads = 1, dim = 64;
  Clusters clusters;
  Dtype dtype = Dtype::f32;
  Layout layout = Layout::bhsd;
};

// "clustered" or "clustered:dim=128,seed=3"; nothing for any other source,
// which is a file.
Result<std::optional<DrawnInputs>> parse_drawn(std::string_view source);

struct DrawnArrays {
  Array q, k;
};
// Clusters are the settings' tiles and blocks. The arrays, and what routing
// makes of them, must fit the memory that is free.
Result<DrawnArrays> draw_arrays(const DrawnInputs& inputs,
                                const RouteSettings& settings,
                                const Request& request, const Facts& facts,
                                int threads);

}  // namespace tessera::cli
