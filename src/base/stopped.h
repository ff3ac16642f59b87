// base/stopped.h: a question that long calls ask now and then.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string_view>

#include "tessera/result.h"

namespace tessera {

// Asked from the calling thread: where it says so, the call ends with an error
// of the kind `stopped`. Empty: nobody ends it.
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
