// lanes/jax_bridge/attention_lane.h: the jax_bridge lane as a session sees it.
#pragma once

#include <memory>

#include "lanes/lane.h"

namespace tessera::bridge {

Result<std::unique_ptr<lanes::OpenLane>> open_bridge_lane(
    const lanes::LaneOptions& options);

}  // namespace tessera::bridge
