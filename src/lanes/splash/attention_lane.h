// lanes/splash/attention_lane.h: the splash lane as a session sees it.
#pragma once

#include <memory>

#include "lanes/lane.h"

namespace tessera::splash {

Result<std::unique_ptr<lanes::OpenLane>> open_splash_lane(
    const lanes::LaneOptions& options);

}  // namespace tessera::splash
