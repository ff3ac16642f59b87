// cli/request/routed_picks.cc: from a source of picks to a fact of the request.
#include "cli/request/routed_picks.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "base/timed.h"
#include "cli/numbers.h"
#include "cli/plan/report.h"
#include "cli/request/flags.h"
#include "receipt/machine.h"

namespace tessera::cli {
namespace {

constexpr std::string_view kClustered = "clustered";

bool has_router(const Expr& e) {
  return e.atom == Atom::routed ||
         std::any_of(e.children.begin(), e.children.end(), has_router);
}

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
  for (const Number& n : {Number{"heads", 1, 1 << 16, &out.heads},
                          Number{"kv_heads", 1, 1 << 16, &out.kv_heads},
                          Number{"dim", 1, 1 << 16, &out.dim},
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

Result<void> draw(const DrawnInputs& d, const RouteSettings& s,
                  const RouteOptions& options, const Resolved& resolved,
                  Array& q, Array& k) {
  const Request& r = resolved.request;
  auto e = check_drawn(resolved, s, {d.heads, d.kv_heads, d.dim}, Dtype::f32,
                       options.threads);
  if (!e) return e;
  Clusters clusters = d.clusters;
  clusters.query_tile = s.query_tile;
  clusters.block = s.block;
  q = Array(Dtype::f32, Layout::bhsd, r.batch, d.heads, r.q_len, d.dim);
  k = Array(Dtype::f32, Layout::bhsd, r.batch, d.kv_heads, r.kv_len, d.dim);
  fill_clustered_queries(q, clusters);
  fill_clustered_keys(k, clusters);
  return {};
}

Receipt::Routing record_of(const RouteResult& r, bool given) {
  const RouteCounts& c = r.counts;
  return {given,
          r.settings,
          r.heads,
          c.picks,
          c.removed_invalid + c.removed_documents + c.removed_future,
          c.union_blocks,
          c.tile_rows,
          r.unions.widest,
          r.unions.capacity};
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

bool names_router(const Request& request) {
  return std::any_of(request.masks.begin(), request.masks.end(),
                     [](const Mask& mask) { return has_router(mask.expr); });
}

Result<void> check_unread(const RouteFlags& f, const PicksFile& given) {
  if (!given.picks && !given.tile_picks) {
    if (!given.metas || !f.top_metas) return {};
    return invalid("cli",
                   "given metas are kept as they are, found --top-metas for "
                   "them");
  }
  const std::pair<const std::optional<std::string>*, std::string_view> flags[] =
      {{&f.rule, "--rule"},
       {&f.compression, "--compression"},
       {&f.stride, "--stride"},
       {&f.kv_tile, "--kv-tile"},
       {&f.sink_blocks, "--sink-blocks"},
       {&f.meta_ratio, "--meta-ratio"},
       {&f.top_metas, "--top-metas"}};
  std::string_view found = f.hierarchical ? "--hierarchical" : "";
  for (const auto& [value, name] : flags) {
    if (*value) found = name;
  }
  if (found.empty()) return {};
  return invalid("cli", "given picks are not scored again, found {} for them",
                 found);
}

Result<PickSource> read_pick_source(const std::optional<std::string>& source,
                                    const Request& request,
                                    const RouteFlags& flags) {
  PickSource out;
  if (!source) return out;
  out.name = *source;
  auto drawn = parse_drawn(*source);
  if (!drawn) return drawn.error();
  out.drawn = *drawn;
  if (out.drawn) return out;
  auto settings = read_route_settings(flags, request);
  if (!settings) return settings.error();
  auto file = read_picks_file(*source, request, settings->query_tile);
  if (!file) return file.error();
  out.file = std::move(*file);
  if (auto e = check_unread(flags, out.file); !e) return e.error();
  return out;
}

Result<void> check_drawn(const Resolved& resolved, const RouteSettings& s,
                         const RouteShape& shape, Dtype dtype, int threads) {
  const Request& r = resolved.request;
  auto rows = route_rows(r, resolved.facts.view(), s.block);
  if (!rows) return rows.error();
  const double values =
      static_cast<double>(r.batch) * static_cast<double>(shape.dim) *
      (static_cast<double>(shape.heads) * static_cast<double>(r.q_len) +
       static_cast<double>(shape.kv_heads) * static_cast<double>(r.kv_len));
  // Centroids are floats, one for each tile or block.
  const auto group = static_cast<double>(std::min(s.query_tile, s.block));
  const double needed =
      values * (static_cast<double>(byte_width(dtype)) + 4 / group) +
      route_bytes(r, *rows, s, shape, route_threads(threads));
  if (needed <= static_cast<double>(available_memory())) return {};
  return over_limit("route",
                    "clustered inputs and what routing makes of them must fit "
                    "the memory that is free, found {} bytes for them",
                    with_unit(needed));
}

Result<double> routing_bytes(const RouteFlags& flags, const PickSource& source,
                             const Resolved& resolved, const RouteShape& shape,
                             int threads) {
  const Request& r = resolved.request;
  auto settings = read_route_settings(flags, r);
  if (!settings) return settings.error();
  const PicksFile& file = source.file;
  for (const auto* given : {&file.picks, &file.tile_picks}) {
    if (!*given) continue;
    auto e =
        check_pick_heads((*given)->view().heads, shape.kv_heads, shape.heads);
    if (!e) return e.error();
  }
  if (source.complete()) return 0.0;
  auto rows = route_rows(r, resolved.facts.view(), settings->block);
  if (!rows) return rows.error();
  return route_bytes(r, *rows, *settings, shape, route_threads(threads));
}

Result<Receipt::Routing> route_picks(const RouteFlags& flags,
                                     const PickSource& source,
                                     RouteInputs arrays,
                                     const RouteOptions& options,
                                     Resolved& resolved, double& ms) {
  auto settings = read_route_settings(flags, resolved.request);
  if (!settings) return settings.error();
  Array q, k;
  if (source.drawn) {
    auto e = draw(*source.drawn, *settings, options, resolved, q, k);
    if (!e) return e.error();
    arrays.q = std::as_const(q).view();
    arrays.k = std::as_const(k).view();
  }
  source.file.add_to(arrays);
  if (!source.complete() && !arrays.q) {
    if (arrays.metas) {
      return invalid("cli",
                     "metas enter before their blocks are scored, which takes "
                     "q and k, found none here (`tessera route` and `tessera "
                     "run` have them)");
    }
    return invalid("cli",
                   "routed(top, block) needs picks, found none (give --picks "
                   "FILE, or --picks clustered for drawn ones)");
  }
  RouteOptions within = options;
  within.memory = available_memory();
  auto routed = timed(ms, [&] {
    return route(resolved.request, resolved.facts.view(), arrays, *settings,
                 within);
  });
  if (!routed) return routed.error();
  RouteResult& r = *routed;
  for (const std::string& warning : r.warnings) {
    print_error(fmt::format("tessera: warning: {}\n", warning));
  }
  Receipt::Routing record = record_of(r, arrays.picks || arrays.tile_picks);
  OwnedFacts& facts = resolved.facts;
  const bool own = r.run_picks.empty();
  facts.picks = std::move(own ? r.picks : r.run_picks);
  facts.picks_heads = r.heads;
  facts.picks_k = own ? r.k : r.run_k;
  facts.picks_meaning = settings->meaning;
  facts.picks_query_tile = settings->query_tile;
  return record;
}

}  // namespace tessera::cli
