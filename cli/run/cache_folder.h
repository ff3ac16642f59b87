// cli/run/cache_folder.h: the folder of the cache of compiled programs.
#pragma once

#include <optional>
#include <string>

#include "tessera/result.h"

namespace tessera::cli {

// The first of these that is given: `flag` or $TESSERA_CACHE, each a folder or
// "off"; $XDG_CACHE_HOME/tessera; $HOME/.cache/tessera. An empty variable
// counts as absent, and so does one of the last two that is no absolute path.
// The result
// "" means no cache.
Result<std::string> cache_folder(const std::optional<std::string>& flag);

}  // namespace tessera::cli
