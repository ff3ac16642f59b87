// cli/route/drawn_inputs.cc: draws the arrays of "clustered:...".
#include "cli/route/drawn_inputs.h"

#include <algorithm>

#include "receipt/machine.h"
#include "route/memory_use.h"

namespace tessera::cli {
namespace {

Result<void> check_memory(const DrawnInputs& d, const RouteSettings& s,
                          const Request& r, const Facts& facts, int threads) {
  auto rows = routing::route_rows(r, facts, s.block);
  if (!rows) return rows.error();
  const double values =
      static_cast<double>(r.batch) * static_cast<double>(d.dim) *
      (static_cast<double>(d.heads) * static_cast<double>(r.q_len) +
       static_cast<double>(d.kv_heads) * static_cast<double>(r.kv_len));
  // Centroids are floats, one for each tile or block.
  const auto group = static_cast<double>(std::min(s.query_tile, s.block));
  const double needed =
      values * (static_cast<double>(byte_width(d.dtype)) + 4 / group) +
      routing::route_bytes(r, *rows, s, {d.heads, d.kv_heads, d.dim},
                           routing::route_threads(threads));
  return receipt::check_free("route", needed,
                             "clustered inputs and what routing makes of them");
}

}  // namespace

request::Clusters clusters_of(const request::DrawnPicks& drawn,
                              const RouteSettings& s) {
  return {drawn.seed, s.query_tile, s.block, drawn.spread};
}

Result<DrawnArrays> draw_arrays(const DrawnInputs& d, const RouteSettings& s,
                                const Request& r, const Facts& facts,
                                int threads) {
  if (auto e = check_memory(d, s, r, facts, threads); !e) return e.error();
  const request::Clusters clusters = clusters_of(d, s);
  DrawnArrays out;
  out.q = request::Array(d.dtype, d.layout, r.batch, d.heads, r.q_len, d.dim);
  out.k =
      request::Array(d.dtype, d.layout, r.batch, d.kv_heads, r.kv_len, d.dim);
  fill_clustered_queries(out.q, clusters);
  fill_clustered_keys(out.k, clusters);
  return out;
}

}  // namespace tessera::cli
