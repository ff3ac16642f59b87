// lanes/reference/lane.h: the reference lane as a session sees it.
#pragma once

#include <memory>

#include "lanes/lane.h"

namespace tessera {

Result<std::unique_ptr<OpenLane>> open_reference_lane(
    const LaneOptions& options);

}  // namespace tessera
