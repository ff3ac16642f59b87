// lanes/mosaic/shard_lane.h: the TPU kernel over a mesh of devices: one program
// that each of them runs on its own shard (shards.h).
#pragma once

#include <memory>

#include "lanes/lane.h"

namespace tessera::mosaic {

// `options.mesh` must have more than one device.
Result<std::unique_ptr<lanes::OpenLane>> open_mosaic_shard_lane(
    const lanes::LaneOptions& options);

}  // namespace tessera::mosaic
