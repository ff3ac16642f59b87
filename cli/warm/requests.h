// cli/warm/requests.h: the requests whose programs are compiled.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/request/flags.h"
#include "tessera/result.h"

namespace tessera::cli {

// Each spec, or the flags, with each seed.
Result<std::vector<RequestFlags>> warm_requests(
    const RequestFlags& flags, const std::vector<std::string>& specs,
    const std::optional<std::string>& asked_seeds);

}  // namespace tessera::cli
