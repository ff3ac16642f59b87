// lanes/xla/attention_lane.h: the xla lane as a session sees it.
#pragma once

#include <memory>

#include "lanes/lane.h"

namespace tessera::xla {

Result<std::unique_ptr<lanes::OpenLane>> open_xla_lane(
    const lanes::LaneOptions& options);

}  // namespace tessera::xla
