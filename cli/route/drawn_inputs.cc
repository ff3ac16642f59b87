// cli/route/drawn_inputs.cc: "clustered:..." and its arrays.
#include "cli/route/drawn_inputs.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "cli/numbers.h"
#include "cli/plan/report.h"
#include "receipt/machine.h"
#include "route/memory_use.h"

namespace tessera::cli {
namespace {

constexpr std::string_view kClustered = "clustered";

Result<void> read_setting(std::string_view part, DrawnInputs& out) {
  const size_t at = part.find('=');
  const std::string_view key = trim(part.substr(0, at));
  if (at == std::string_view::npos) {
    return invalid("cli", "--picks clustered takes name=value, found {}",
                   in_quotes(part));
  }
  const std::string_view value = part.substr(at + 1);
  struct Number {
    std::string_view key;
    int64_t least, most;
    int64_t* out;
  };
  int64_t seed = 0;
  for (const Number& n : {Number{"heads", 1, kMaxHeads, &out.heads},
                          Number{"kv_heads", 1, kMaxHeads, &out.kv_heads},
                          Number{"dim", 1, kMaxHeadDim, &out.dim},
                          Number{"seed", 0, int64_t{1} << 62, &seed}}) {
    if (key != n.key) continue;
    auto parsed = parse_int(value, fmt::format("--picks clustered {}", key),
                            n.least, n.most);
    if (!parsed) return parsed.error();
    *n.out = *parsed;
    if (key == "seed") out.clusters.seed = static_cast<uint64_t>(seed);
    return {};
  }
  if (key == "spread") {
    auto spread = parse_positive(value, "--picks clustered spread");
    if (!spread) return spread.error();
    out.clusters.spread = *spread;
    return {};
  }
  return invalid("cli",
                 "--picks clustered takes heads, kv_heads, dim, spread and "
                 "seed, found {}",
                 in_quotes(key));
}

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
  if (needed <= static_cast<double>(receipt::available_memory())) return {};
  return over_limit("route",
                    "clustered inputs and what routing makes of them must fit "
                    "the memory that is free, found {} bytes for them",
                    with_unit(needed));
}

}  // namespace

Result<std::optional<DrawnInputs>> parse_drawn(std::string_view source) {
  std::optional<DrawnInputs> out;
  if (source.substr(0, kClustered.size()) != kClustered) return out;
  std::string_view rest = source.substr(kClustered.size());
  if (!rest.empty() && rest.front() != ':') return out;
  out.emplace();
  out->kv_heads = 0;  // as many as heads
  if (!rest.empty()) {
    std::set<std::string_view> seen;
    for (const std::string_view part : split(rest.substr(1), ',')) {
      if (auto e = read_setting(part, *out); !e) return e.error();
      const std::string_view key = trim(part.substr(0, part.find('=')));
      if (!seen.insert(key).second) {
        return invalid("cli",
                       "--picks clustered takes each name once, found "
                       "{} twice",
                       key);
      }
    }
  }
  if (out->kv_heads == 0) out->kv_heads = out->heads;
  if (out->heads % out->kv_heads != 0) {
    return invalid("cli",
                   "--picks clustered kv_heads must divide heads, found {} for "
                   "{}",
                   out->kv_heads, out->heads);
  }
  return out;
}

Result<DrawnArrays> draw_arrays(const DrawnInputs& d, const RouteSettings& s,
                                const Request& r, const Facts& facts,
                                int threads) {
  if (auto e = check_memory(d, s, r, facts, threads); !e) return e.error();
  Clusters clusters = d.clusters;
  clusters.query_tile = s.query_tile;
  clusters.block = s.block;
  DrawnArrays out;
  out.q = Array(d.dtype, d.layout, r.batch, d.heads, r.q_len, d.dim);
  out.k = Array(d.dtype, d.layout, r.batch, d.kv_heads, r.kv_len, d.dim);
  fill_clustered_queries(out.q, clusters);
  fill_clustered_keys(out.k, clusters);
  return out;
}

}  // namespace tessera::cli
