// cli/route/pictures.h: picks and tiles as text.
#pragma once

#include <string>

#include "cli/route/job.h"
#include "tessera/batch.h"

namespace tessera::cli {

// Pictures of the picks, and of the tiles of the plan made from them.
Result<std::string> route_pictures(const RouteCommandFlags& flags,
                                   const RouteJob& job, const Batch& batch);

}  // namespace tessera::cli
