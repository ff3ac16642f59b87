// lanes/mosaic/attention_lane.h: the session lane of the TPU kernel.
#pragma once

#include <memory>

#include "lanes/lane.h"

namespace tessera::mosaic {

Result<std::unique_ptr<lanes::OpenLane>> open_mosaic_lane(
    const lanes::LaneOptions& options);

}  // namespace tessera::mosaic
