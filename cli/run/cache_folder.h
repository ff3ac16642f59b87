// cli/run/cache_folder.h: where compiled programs are kept.
#pragma once

#include <optional>
#include <string>

#include "tessera/result.h"

namespace tessera::cli {

// `flag` where there is one, else $TESSERA_CACHE, each a folder or "off", else
// $XDG_CACHE_HOME/tessera, else $HOME/.cache/tessera. A variable that is empty
// counts as absent, and so does one of the latter two that is no absolute path.
// Empty: kept nowhere.
Result<std::string> cache_folder(const std::optional<std::string>& flag);

}  // namespace tessera::cli
