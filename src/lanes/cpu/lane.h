// lanes/cpu/lane.h: the cpu lane as a session sees it.
#pragma once

#include <memory>

#include "lanes/lane.h"

namespace tessera {

Result<std::unique_ptr<OpenLane>> open_cpu_lane(const LaneOptions& options);

}  // namespace tessera
