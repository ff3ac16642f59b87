// run/repeat.h: how the run that a receipt tells of is made again.
#pragma once

#include <optional>
#include <string>

#include "receipt/receipt.h"
#include "tessera/session.h"

namespace tessera::run {

// The plugin that a receipt's run must load again. What a file says is never
// loaded for that alone: it must be an installed one, or `named` by who asks.
Result<std::string> plugin_to_load(const receipt::Receipt& receipt,
                                   const std::optional<std::string>& named);

// `options` with the lane that ran forced, and all that the receipt says it was
// given: threads, method, mesh, plugin and the like. What no receipt tells, as
// an artifact or a folder of compiled programs, stays as it is.
Result<SessionOptions> options_to_repeat(
    const receipt::Receipt& claimed, SessionOptions options,
    const std::optional<std::string>& named_plugin);

}  // namespace tessera::run
