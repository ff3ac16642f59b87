// lanes/jax_bridge/attention_lane.h: the jax_bridge lane as a session sees it.
#pragma once

#include <memory>

#include "lanes/lane.h"

namespace tessera {

Result<std::unique_ptr<OpenLane>> open_bridge_lane(const LaneOptions& options);

}  // namespace tessera
