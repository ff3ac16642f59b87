// route/settings.h: settings that fit each other, or the rule they break.
#pragma once

#include "tessera/route.h"

namespace tessera::routing {

// Most values of any array of picks.
inline constexpr int64_t kMaxPicks = int64_t{1} << 33;
inline constexpr int64_t kMaxTop = int64_t{1} << 16;

Result<void> check_settings(const RouteSettings& settings);

}  // namespace tessera::routing
