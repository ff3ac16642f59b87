// request/drawn_picks.h: settings of drawn q and k that the router picks from.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "tessera/result.h"

namespace tessera::request {

// The sizes and the seed of q and k in clusters.
struct DrawnPicks {
  int64_t heads = 1, kv_heads = 1, dim = 64;
  uint64_t seed = 0;
  double spread = 0.1;  // of tokens around their centroid
};

// "clustered" or "clustered:dim=128,seed=3"; nothing for any other source,
// which is a file.
Result<std::optional<DrawnPicks>> parse_drawn(std::string_view source);

}  // namespace tessera::request
