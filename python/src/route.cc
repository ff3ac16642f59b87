#include "route.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <string>
#include <utility>

#include "arrays.h"
#include "batch.h"
#include "facts.h"
#include "failure.h"
#include "interrupts.h"
#include "mask.h"
#include "plan/stoppable.h"
#include "tessera/route.h"

namespace tessera::python {
namespace {

RouteRule parse_rule(const std::string& text) {
  for (const RouteRule rule :
       {RouteRule::kv_head, RouteRule::query_head, RouteRule::query_tile}) {
    if (to_string(rule) == text) return rule;
  }
  refuse("rule must be 'kv-head', 'query-head' or 'query-tile', found '" +
         text + "'");
}

NewBatch route(nb::object mask, nb::handle q, nb::handle k,
               const std::string& layout, std::pair<int64_t, int64_t> tile,
               nb::object doc_ids, nb::object valid_token_counts,
               nb::object q_offset, const std::string& rule,
               int64_t compression, int64_t stride, int64_t query_tile,
               int64_t kv_tile, int64_t sink_blocks, bool hierarchical,
               int64_t meta_ratio, int64_t top_metas,
               const std::string& meaning, int64_t max_steps, int64_t max_width,
               int64_t max_union) {
  const Layout order = parse_layout(layout);
  const Array queries = read_array("q", q);
  const Array keys = read_array("k", k);
  RouteInputs inputs;
  inputs.q = input_of(queries, order);
  inputs.k = input_of(keys, order);
  Request request;
  request.masks = read_masks(mask);
  request.batch = inputs.q->batch;
  request.q_len = inputs.q->tokens;
  request.kv_len = inputs.k->tokens;
  request.tile = {tile.first, tile.second};
  request.ceilings = {max_steps, max_width, max_union};
  RouteSettings wish;
  wish.rule = parse_rule(rule);
  wish.compression = compression;
  wish.stride = stride;
  wish.query_tile = query_tile;
  wish.kv_tile = kv_tile;
  wish.sink_blocks = sink_blocks;
  wish.hierarchical = hierarchical;
  wish.meta_ratio = meta_ratio;
  wish.top_metas = top_metas;
  wish.meaning = take(parse_route_meaning(meaning));
  const RouteSettings settings = take(settings_of(request, wish));
  const nb::none none;
  OwnedFacts facts = read_facts({doc_ids, none, none, none, valid_token_counts,
                                 none, q_offset, none, none, none},
                                request);
  auto made = without_gil([&](const StopFlag*) {
    return plan::route_batch(std::move(request), std::move(facts), inputs,
                             settings, {}, Interrupts::stopped);
  });
  return new_batch(take(std::move(made)));
}

}  // namespace

void bind_route(nb::module_& m) {
  const RouteSettings s;
  m.def("route", &route, nb::arg("mask"), nb::arg("q"), nb::arg("k"),
        nb::kw_only(), nb::arg("layout") = "bhsd",
        nb::arg("tile") = std::pair<int64_t, int64_t>{256, 256},
        nb::arg("doc_ids") = nb::none(),
        nb::arg("valid_token_counts") = nb::none(),
        nb::arg("q_offset") = nb::none(), nb::arg("rule") = "kv-head",
        nb::arg("compression") = s.compression, nb::arg("stride") = s.stride,
        nb::arg("query_tile") = s.query_tile, nb::arg("kv_tile") = s.kv_tile,
        nb::arg("sink_blocks") = s.sink_blocks,
        nb::arg("hierarchical") = s.hierarchical,
        nb::arg("meta_ratio") = s.meta_ratio,
        nb::arg("top_metas") = s.top_metas, nb::arg("meaning") = "exact",
        nb::arg("max_steps") = 0, nb::arg("max_width") = 0,
        nb::arg("max_union") = 0,
        "Makes a batch whose picks the router finds. Returns a Batch.\n\n"
        "`mask` names `routed(top, block)`. The router scores blocks of\n"
        "keys by q and k and picks those that each query attends to. q is\n"
        "[batch, heads, q_len, dim] and k [batch, kv_heads, kv_len, dim],\n"
        "or with the layout 'bshd' [batch, tokens, heads, dim]. No\n"
        "gradient flows through the picks.\n\n"
        "- `rule`: who picks: 'kv-head', the query heads of a KV head\n"
        "  together; 'query-head', each query head alone; or\n"
        "  'query-tile', the queries of one document in a query tile\n"
        "  together\n"
        "- `compression`: keys that are pooled to one; `stride`: keys\n"
        "  from one such group to the next\n"
        "- `query_tile`: queries that share a union of picks; `kv_tile`:\n"
        "  keys of a routing tile\n"
        "- `sink_blocks`: first blocks that are always picked\n"
        "- `hierarchical`: scores groups of `meta_ratio` blocks first,\n"
        "  and then the blocks of the best `top_metas` groups\n"
        "- `meaning`: 'exact', each query attends to its own picks, or\n"
        "  'union', to those of all queries of its tile row\n"
        "- `max_steps`, `max_width`, `max_union`: ceilings, as in `plan`");
}

}  // namespace tessera::python
