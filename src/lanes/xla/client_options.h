// lanes/xla/client_options.h: parses the options that a plugin is started with.
#pragma once

#include <string>
#include <vector>

#include "pjrt/client.h"

namespace tessera::xla {

// Each is "name=value": an integer, a number, true, false, or else a string.
Result<pjrt::ClientOptions> read_client_options(
    const std::vector<std::string>& options);

}  // namespace tessera::xla
