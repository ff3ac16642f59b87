// lanes/mosaic/attention_lane.h: the TPU kernel as a session sees it.
#pragma once

#include <memory>

#include "lanes/lane.h"

namespace tessera {

Result<std::unique_ptr<OpenLane>> open_mosaic_lane(const LaneOptions& options);

}  // namespace tessera
