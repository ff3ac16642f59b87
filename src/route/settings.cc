// route/settings.cc: names and checks of settings, and those of a mask.
#include "route/settings.h"

#include <array>

#include "base/fail.h"
#include "base/text.h"
#include "mask/bind.h"

namespace tessera {
namespace {

Result<void> check_divides(std::string_view part, int64_t a,
                           std::string_view whole, int64_t b) {
  if (b % a == 0) return {};
  return invalid("route", "{} must divide {}, found {} for {}", part, whole, a,
                 b);
}

// All routed(...) atoms must ask for the same number of picks.
Result<void> find_top(const Expr& e, std::optional<int64_t>& top) {
  if (e.atom == Atom::routed) {
    if (top && *top != e.a) {
      return invalid("route",
                     "routed must pick one number of blocks in all masks, "
                     "found {} and {}",
                     *top, e.a);
    }
    top = e.a;
  }
  for (const Expr& child : e.children) {
    if (auto r = find_top(child, top); !r) return r;
  }
  return {};
}

}  // namespace

std::string_view to_string(RouteRule rule) {
  constexpr std::string_view kNames[] = {"kv-head", "query-head", "query-tile"};
  return kNames[static_cast<size_t>(rule)];
}

std::string_view to_string(UnionMethod method) {
  return method == UnionMethod::bitmap ? "bitmap" : "sort";
}

Result<UnionMethod> parse_union_method(std::string_view text) {
  if (text == "bitmap") return UnionMethod::bitmap;
  if (text == "sort") return UnionMethod::sort;
  return invalid("route", "a union is found by bitmap or by sort, found {}",
                 in_quotes(text));
}

std::string_view to_string(RouteStage stage) {
  constexpr std::string_view kNames[kRouteStages] = {
      "pool",  "window",   "coarse", "score",
      "top_n", "legality", "union",  "expand"};
  return kNames[static_cast<size_t>(stage)];
}

std::span<const RoutePhase> route_phases() {
  static constexpr std::array<RoutePhase, 3> kPhases = {{
      {"routing", "pool, window, coarse, score, top_n", false},
      {"workset", "legality, union, expand, plan", false},
      {"attention", "forward, backward", true},
  }};
  return kPhases;
}

RouteSettings moba_settings(int64_t top, int64_t block) {
  RouteSettings s;
  s.rule = RouteRule::query_head;
  s.top = top;
  s.block = s.compression = s.stride = s.kv_tile = block;
  return s;
}

Result<RouteSettings> settings_of(const Request& request, RouteSettings s) {
  if (auto e = mask::check_request(request); !e) return e.error();
  std::optional<int64_t> top, block;
  for (const Mask& mask : request.masks) {
    if (auto e = find_top(mask.expr, top); !e) return e.error();
    if (!mask.names.picks) continue;
    if (block && *block != mask.names.picks_block) {
      return invalid("mask",
                     "blocks and routed share the picks, so one block size, "
                     "found {} and {}",
                     *block, mask.names.picks_block);
    }
    block = mask.names.picks_block;
  }
  if (!block) {
    return invalid("route",
                   "a mask must name routed(top, block) or blocks(n), found "
                   "none of them in {}",
                   to_string(request.masks.front()));
  }
  if (top) s.top = *top;
  s.block = *block;
  return s;
}

Result<void> routing::check_settings(const RouteSettings& s) {
  struct Rule {
    std::string_view what;
    int64_t value, most;
  };
  for (const Rule& r : {
           Rule{"top", s.top, kMaxTop},
           Rule{"block", s.block, kMaxTokens},
           Rule{"compression", s.compression, kMaxTokens},
           Rule{"stride", s.stride, kMaxTokens},
           Rule{"query_tile", s.query_tile, kMaxTokens},
           Rule{"kv_tile", s.kv_tile, kMaxTokens},
           Rule{"meta_ratio", s.meta_ratio, 1024},
           Rule{"top_metas", s.top_metas, kMaxTop},
       }) {
    if (r.value >= 1 && r.value <= r.most) continue;
    return invalid("route", "{} must be from 1 to {}, found {}", r.what, r.most,
                   r.value);
  }
  if (s.sink_blocks < 0 || s.sink_blocks >= s.top) {
    return invalid("route",
                   "sink_blocks must leave a pick for the own block, found {} "
                   "for top {}",
                   s.sink_blocks, s.top);
  }
  if (s.compression > s.block) {
    return invalid("route", "compression must be at most block {}, found {}",
                   s.block, s.compression);
  }
  if (auto e = check_divides("stride", s.stride, "block", s.block); !e) {
    return e;
  }
  return check_divides("stride", s.stride, "kv_tile", s.kv_tile);
}

}  // namespace tessera
