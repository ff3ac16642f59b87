// request/pick_source.cc: reads and checks a source of picks before routing.
#include "request/pick_source.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/fail.h"
#include "request/given_picks.h"

namespace tessera::request {
namespace {

bool has_router(const Expr& e) {
  return e.atom == Atom::routed ||
         std::any_of(e.children.begin(), e.children.end(), has_router);
}

}  // namespace

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
                                    const RouteFlags& route) {
  PickSource out;
  if (!source) return out;
  out.name = *source;
  auto drawn = parse_drawn(*source);
  if (!drawn) return drawn.error();
  out.drawn = *drawn;
  if (out.drawn) return out;
  auto settings = read_route_settings(route, request);
  if (!settings) return settings.error();
  auto file = read_picks_file(*source, request, settings->query_tile);
  if (!file) return file.error();
  out.file = std::move(*file);
  if (auto e = check_unread(route, out.file); !e) return e.error();
  return out;
}

Result<void> check_complete(const PickSource& source) {
  if (source.complete()) return {};
  if (source.file.metas) {
    return invalid("cli",
                   "metas enter before their blocks are scored, which takes "
                   "q and k, found none here (`tessera route` and `tessera "
                   "run` have them)");
  }
  return invalid("cli",
                 "routed(top, block) needs picks, found none (give --picks "
                 "FILE, or --picks clustered for drawn ones)");
}

Result<Picks> asked_picks(const std::string& text, const Request& request) {
  Picks out;
  if (!names_router(request)) {
    OwnedFacts facts;
    if (auto e = read_given_picks(text, request, facts); !e) return e.error();
    out.heads = facts.picks_heads;
    out.k = facts.picks_k;
    return out;
  }
  auto source = read_pick_source(text, request, {});
  if (!source) return source.error();
  if (auto e = check_complete(*source); !e) return e.error();
  auto settings = read_route_settings({}, request);
  if (!settings) return settings.error();
  const PicksFile& file = source->file;
  if (const auto& drawn = source->drawn) {
    out.heads = routing::heads_of(settings->rule,
                                  {drawn->heads, drawn->kv_heads, drawn->dim});
    out.k = settings->top;
  } else {
    out = (file.picks ? file.picks : file.tile_picks)->view();
    out.blocks = {};
  }
  out.meaning = settings->meaning;
  out.query_tile = settings->query_tile;
  return out;
}

Result<double> routing_bytes(const RouteFlags& route, const PickSource& source,
                             const Resolved& resolved,
                             const routing::RouteShape& shape, int threads) {
  const Request& r = resolved.request;
  auto settings = read_route_settings(route, r);
  if (!settings) return settings.error();
  const PicksFile& file = source.file;
  for (const auto* given : {&file.picks, &file.tile_picks}) {
    if (!*given) continue;
    auto e = routing::check_pick_heads((*given)->view().heads, shape.kv_heads,
                                       shape.heads);
    if (!e) return e.error();
  }
  if (source.complete()) return 0.0;
  auto rows = routing::route_rows(r, resolved.facts.view(), settings->block);
  if (!rows) return rows.error();
  return routing::route_bytes(r, *rows, *settings, shape,
                              routing::route_threads(threads));
}

}  // namespace tessera::request
