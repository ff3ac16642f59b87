// lanes/stop.h: a caller's stop flag, looked at between pieces of work.
#pragma once

#include <string_view>

#include "base/fail.h"
#include "tessera/attention.h"

namespace tessera::lanes {

// `when`: "before it ran".
inline Error stopped_error(std::string_view where, std::string_view when) {
  return {ErrorKind::stopped,
          fmt::format("[{}] a call must not be stopped to give its outputs, "
                      "found it stopped {}",
                      where, when),
          0};
}

inline Result<void> check_stop(const StopFlag* stop, std::string_view where,
                               std::string_view when) {
  if (!stop || !stop->stopped()) return {};
  return stopped_error(where, when);
}

}  // namespace tessera::lanes
