// lanes/reference/lane.h: the reference lane as a session sees it.
#pragma once

#include <memory>

#include "lanes/lane.h"

namespace tessera::reference {

Result<std::unique_ptr<lanes::OpenLane>> open_reference_lane(
    const lanes::LaneOptions& options);

}  // namespace tessera::reference
