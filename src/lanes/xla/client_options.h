// lanes/xla/client_options.h: what a plugin is started with, from text.
#pragma once

#include <string>
#include <vector>

#include "pjrt/client.h"

namespace tessera::xla {

// "name=value" each: a whole number, a number, true, false, or else a text.
Result<pjrt::ClientOptions> read_client_options(
    const std::vector<std::string>& options);

}  // namespace tessera::xla
