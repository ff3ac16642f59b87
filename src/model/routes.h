// model/routes.h: the clustered layers of a model: JSON and rules.
#pragma once

#include <string>
#include <vector>

#include "base/json_read.h"
#include "tessera/mask.h"
#include "tessera/train.h"

namespace tessera::model {

// [{"top": 4, "block": 64, "rule": "kv-head"}, null]
Result<std::vector<LayerRoute>> read_routes(const Json& value);
Json to_json(const std::vector<LayerRoute>& routes);
Result<void> check_routes(const std::vector<LayerRoute>& routes);

// The mask, which has no picks, restricted to the route's picks.
Result<Mask> routed_mask(const Mask& mask, const LayerRoute& route);

// The number of heads that pick; 1 for a layer that is not clustered.
int64_t picking_heads(const LayerRoute& route, int64_t heads, int64_t kv_heads);

}  // namespace tessera::model
