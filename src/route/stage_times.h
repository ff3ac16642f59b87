// route/stage_times.h: measures the time of each stage of routing.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>

#include "base/timed.h"
#include "tessera/route.h"

namespace tessera::routing {

// For RouteOptions::after: adds to `ms`, which must outlive the function, the
// milliseconds of each stage since the previous oneor, for the first, since
// now.
inline std::function<void(RouteStage)> adds_to(
    std::array<double, kRouteStages>& ms) {
  using Clock = std::chrono::steady_clock;
  return [&ms, last = Clock::now()](RouteStage stage) mutable {
    ms[static_cast<size_t>(stage)] += ms_since(last);
    last = Clock::now();
  };
}

}  // namespace tessera::routing
