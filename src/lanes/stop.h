// lanes/stop.h: checks the caller's stop flag between pieces of work.
#pragma once

#include <string_view>

#include "base/stopped.h"
#include "tessera/attention.h"

namespace tessera::lanes {

inline Result<void> check_stop(const StopFlag* stop, std::string_view where,
                               std::string_view when) {
  if (!stop || !stop->stopped()) return {};
  return stopped_error(where, when);
}

}  // namespace tessera::lanes
