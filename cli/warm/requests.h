// cli/warm/requests.h: the requests whose programs are compiled.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "request/load.h"
#include "tessera/result.h"

namespace tessera::cli {

// Each spec, or the flags, with each seed.
Result<std::vector<request::RequestFlags>> warm_requests(
    const request::RequestFlags& flags, const std::vector<std::string>& specs,
    const std::optional<std::string>& asked_seeds);

}  // namespace tessera::cli
