// cli/warm/requests.h: the requests of `tessera warm`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "request/load.h"
#include "tessera/result.h"

namespace tessera::cli {

// One request for each spec (without specs: the flags) and each seed.
Result<std::vector<request::RequestFlags>> warm_requests(
    const request::RequestFlags& flags, const std::vector<std::string>& specs,
    const std::optional<std::string>& asked_seeds);

}  // namespace tessera::cli
