// lanes/xla/shard_lane.h: the xla lane over a mesh of devices: one program that
// each device runs on its own shard (docs/shard.md).
#pragma once

#include <memory>

#include "lanes/lane.h"

namespace tessera::xla {

// `options.mesh` must have more than one device.
Result<std::unique_ptr<lanes::OpenLane>> open_shard_lane(
    const lanes::LaneOptions& options);

}  // namespace tessera::xla
