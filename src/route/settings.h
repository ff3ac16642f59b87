// route/settings.h: checks that routing settings fit each other.
#pragma once

#include "tessera/route.h"

namespace tessera::routing {

// The maximum number of values in an array of picks.
inline constexpr int64_t kMaxPicks = int64_t{1} << 33;
inline constexpr int64_t kMaxTop = int64_t{1} << 16;

Result<void> check_settings(const RouteSettings& settings);

}  // namespace tessera::routing
