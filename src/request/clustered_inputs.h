// request/clustered_inputs.h: random inputs in clusters, for clustered sparse
// attention: the queries of a tile lie near one centroid, as do the keys of a
// block.
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
  // Factor of the noise around a centroid.
  double spread = DrawnPicks().spread;

  // One line that names the generator and its parameters.
  std::string describe() const;
};

// A token is the centroid of its tile or block plus `spread` times noise; both
// are the near-normal numbers of request/random_inputs.h.
void fill_clustered_queries(Array& q, const Clusters& clusters);
void fill_clustered_keys(Array& k, const Clusters& clusters);

}  // namespace tessera::request
