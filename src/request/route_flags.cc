// request/route_flags.cc: parses the router's settings and fits those that were
// not typed to the mask's block.
#include "request/route_flags.h"

#include <algorithm>
#include <numeric>
#include <string_view>

#include "base/fail.h"
#include "base/text.h"
#include "request/numbers.h"
#include "route/settings.h"

namespace tessera::request {
namespace {

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

// Fits the settings without a flag to the mask's block. A short block is pooled
// whole. So is a block whose common divisor with the default stride is small,
// as it would take many strides.
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

}  // namespace tessera::request
