// receipt/routing_json.cc: the router's settings and phases as JSON.
#include "receipt/routing_json.h"

namespace tessera {

using Ordered = nlohmann::ordered_json;

Ordered route_settings_json(const RouteSettings& s) {
  return {{"rule", to_string(s.rule)},
          {"top", s.top},
          {"block", s.block},
          {"compression", s.compression},
          {"stride", s.stride},
          {"query_tile", s.query_tile},
          {"kv_tile", s.kv_tile},
          {"sink_blocks", s.sink_blocks},
          {"hierarchical", s.hierarchical},
          {"meta_ratio", s.meta_ratio},
          {"top_metas", s.top_metas},
          {"union_by", to_string(s.union_method)},
          {"meaning", to_string(s.meaning)},
          {"strict", s.strict}};
}

Ordered route_phases_json() {
  Ordered out = Ordered::array();
  for (const RoutePhase& p : route_phases()) {
    out.push_back(
        {{"name", p.name},
         {"stages", p.stages},
         {"gradient", p.differentiable ? "differentiable" : "stop_gradient"}});
  }
  return out;
}

}  // namespace tessera
