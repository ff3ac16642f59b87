// request/clustered_inputs.h: inputs as clustered sparse attention meets them:
// the queries of a tile are near one centroid, as are the keys of a block.
#pragma once

#include <cstdint>
#include <string>

#include "request/attention_data.h"
#include "request/drawn_picks.h"

namespace tessera::request {

struct Clusters {
  uint64_t seed = 0;
  int64_t query_tile = 256;
  int64_t block = 256;
  // Of tokens around their centroid.
  double spread = DrawnPicks().spread;

  // The generator in a line.
  std::string describe() const;
};

// A token is the centroid of its tile or block plus `spread` times noise; both
// are the near-normal numbers of request/random_inputs.h.
void fill_clustered_queries(Array& q, const Clusters& clusters);
void fill_clustered_keys(Array& k, const Clusters& clusters);

}  // namespace tessera::request
