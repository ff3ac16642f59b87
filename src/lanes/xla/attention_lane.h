// lanes/xla/attention_lane.h: the xla lane as a session sees it.
#pragma once

#include <memory>

#include "lanes/lane.h"

namespace tessera {

Result<std::unique_ptr<OpenLane>> open_xla_lane(const LaneOptions& options);

}  // namespace tessera
