// request/clustered_inputs.cc: centroids and noise from one seed.
#include "request/clustered_inputs.h"

#include <fmt/format.h>

#include <vector>

#include "base/integers.h"
#include "base/tensor_rows.h"
#include "request/random_inputs.h"

namespace tessera::request {
namespace {

// Fills tokens in groups of `size`, one centroid each. The centroids have
// another seed than the noise.
void fill(Array& array, const Clusters& c, int64_t size, Stream stream) {
  constexpr uint64_t kOther = 0x5bd1e9955bd1e995u;
  const MutableTensorView t = array.view();
  const int64_t groups = ceil_div(t.tokens, size);
  std::vector<float> centroids(
      static_cast<size_t>(t.batch * t.heads * groups * t.dim));
  fill_random(centroids, c.seed ^ kOther, stream);
  std::vector<double> row(static_cast<size_t>(t.dim));
  const auto spread = static_cast<float>(c.spread);
  fill_random(t, c.seed, stream);
  for (int64_t b = 0; b < t.batch; ++b) {
    for (int64_t h = 0; h < t.heads; ++h) {
      for (int64_t s = 0; s < t.tokens; ++s) {
        const float* centroid =
            centroids.data() + ((b * t.heads + h) * groups + s / size) * t.dim;
        read_row(as_input(t), b, h, s, row.data());
        for (size_t d = 0; d < row.size(); ++d) {
          const float sum = spread * static_cast<float>(row[d]) + centroid[d];
          row[d] = static_cast<double>(sum);
        }
        write_row(t, b, h, s, row.data());
      }
    }
  }
}

}  // namespace

std::string Clusters::describe() const {
  return fmt::format(
      "clustered: a query is the centroid of its tile of {}, a key that of its "
      "block of {}, both normal, plus {:g} x normal noise; seed {}",
      query_tile, block, spread, seed);
}

void fill_clustered_queries(Array& q, const Clusters& c) {
  fill(q, c, c.query_tile, Stream::q);
}

void fill_clustered_keys(Array& k, const Clusters& c) {
  fill(k, c, c.block, Stream::k);
}

}  // namespace tessera::request
