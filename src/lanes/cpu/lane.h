// lanes/cpu/lane.h: the cpu lane as a session sees it.
#pragma once

#include <memory>

#include "lanes/lane.h"

namespace tessera::cpu {

Result<std::unique_ptr<lanes::OpenLane>> open_cpu_lane(
    const lanes::LaneOptions& options);

}  // namespace tessera::cpu
