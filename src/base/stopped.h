// base/stopped.h: a callback that may end a long call.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string_view>

#include "tessera/result.h"

namespace tessera {

// Called from the calling thread. If it returns true, the call ends with an
// error of the kind `stopped`. Empty: the call always runs to its end.
using Stopped = std::function<bool()>;

// `when`: "before it ran".
inline Error stopped_error(std::string_view where, std::string_view when) {
  return {ErrorKind::stopped,
          fmt::format("[{}] a call must run to its end to give its outputs, "
                      "found it stopped {}",
                      where, when),
          0};
}

}  // namespace tessera
