// cli/route/flags.cc: the router's settings as flags.
#include "cli/route/flags.h"

#include <algorithm>
#include <numeric>

#include "base/fail.h"
#include "base/text.h"
#include "cli/numbers.h"
#include "route/settings.h"

namespace tessera::cli {
namespace {

constexpr const char* kGroup = "The router";

Result<RouteSettings> rule_of(const RouteFlags& f, const Request& request) {
  auto named = settings_of(request, RouteSettings{});
  if (!named || !f.rule) return named;
  if (*f.rule == "moba") return moba_settings(named->top, named->block);
  for (const RouteRule rule :
       {RouteRule::kv_head, RouteRule::query_head, RouteRule::query_tile}) {
    if (*f.rule != to_string(rule)) continue;
    named->rule = rule;
    return named;
  }
  return invalid("cli",
                 "--rule must be one of kv-head, query-head, query-tile, moba, "
                 "found {}",
                 in_quotes(*f.rule));
}

// What no flag says fits the mask's block. A short block is pooled whole, as is
// one that would take many strides: it shares little with the default.
void fit_block(const RouteFlags& f, RouteSettings& s) {
  constexpr int64_t kShortStride = 16;
  const int64_t stride = std::gcd(s.stride, s.block);
  if (!f.compression) {
    const bool whole = !f.stride && stride < kShortStride;
    s.compression = whole ? s.block : std::min(s.compression, s.block);
  }
  if (!f.stride) s.stride = s.compression == s.block ? s.block : stride;
  if (!f.kv_tile) {
    s.kv_tile = s.stride * std::max<int64_t>(1, s.kv_tile / s.stride);
  }
}

}  // namespace

void add_route_flags(Command& command, RouteFlags& f) {
  add_flags(
      command, kGroup,
      {
          {"--rule", &f.rule, "NAME",
           "Who picks: kv-head (the query heads of a KV head together), "
           "query-head, query-tile (the queries of a tile together), or moba "
           "(query-head, one pooled key a block) [kv-head]"},
          {"--compression", &f.compression, "N",
           "Keys pooled to one [128, or the block where that is shorter or "
           "shares less than 16 with 64]"},
          {"--stride", &f.stride, "N",
           "Keys from one compression block to the next [the block where it is "
           "pooled whole, else what it shares with 64]"},
          {"--query-tile", &f.query_tile, "N",
           "Queries that share a union [256]"},
          {"--kv-tile", &f.kv_tile, "N",
           "Keys of a routing tile [1024, or less that the stride divides]"},
          {"--sink-blocks", &f.sink_blocks, "N",
           "First blocks that every query picks, beside its own [0]"},
          {"--hierarchical", &f.hierarchical, "",
           "Score groups of blocks first, then the blocks of the best"},
          {"--meta-ratio", &f.meta_ratio, "N", "Blocks of a group [8]"},
          {"--top-metas", &f.top_metas, "N", "Groups that a query keeps [16]"},
          {"--union-by", &f.union_by, "NAME",
           "bitmap or sort; the results are equal [bitmap]"},
          {"--meaning", &f.meaning, "NAME",
           "exact (each query attends to its own picks) or union (to its tile "
           "row's) [exact]"},
          {"--strict", &f.strict, "",
           "An illegal given pick is an error; otherwise it is removed"},
      });
}

Result<RouteSettings> read_route_settings(const RouteFlags& f,
                                          const Request& request) {
  auto settings = rule_of(f, request);
  if (!settings) return settings;
  RouteSettings& s = *settings;
  struct Number {
    const std::optional<std::string>& text;
    std::string_view what;
    int64_t least;
    int64_t& out;
  };
  for (const Number& n : {
           Number{f.compression, "--compression", 1, s.compression},
           Number{f.stride, "--stride", 1, s.stride},
           Number{f.query_tile, "--query-tile", 1, s.query_tile},
           Number{f.kv_tile, "--kv-tile", 1, s.kv_tile},
           Number{f.sink_blocks, "--sink-blocks", 0, s.sink_blocks},
           Number{f.meta_ratio, "--meta-ratio", 1, s.meta_ratio},
           Number{f.top_metas, "--top-metas", 1, s.top_metas},
       }) {
    if (!n.text) continue;
    auto value = parse_int(*n.text, n.what, n.least, kMaxTokens);
    if (!value) return value.error();
    n.out = *value;
  }
  if (f.rule != "moba") fit_block(f, s);
  if (f.union_by) {
    auto method = parse_union_method(*f.union_by);
    if (!method) return method.error();
    s.union_method = *method;
  }
  if (f.meaning) {
    auto meaning = parse_route_meaning(*f.meaning);
    if (!meaning) return meaning.error();
    s.meaning = *meaning;
  }
  s.hierarchical = f.hierarchical;
  s.strict = f.strict;
  if (auto e = routing::check_settings(s); !e) return e.error();
  return settings;
}

}  // namespace tessera::cli
