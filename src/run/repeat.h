// run/repeat.h: how to run again what a receipt describes.
#pragma once

#include <optional>
#include <string>

#include "receipt/receipt.h"
#include "tessera/session.h"

namespace tessera::run {

// The plugin to load for a receipt's run. A path is never loaded because a
// receipt has it: it must be an installed plugin, or the caller's `named` one.
Result<std::string> plugin_to_load(const receipt::Receipt& receipt,
                                   const std::optional<std::string>& named);

// `options` with the lane that ran forced and with all settings in the receipt:
// threads, method, mesh, plugin and so on. Options that no receipt holds, such
// as the artifact or the cache folder, stay as they are.
Result<SessionOptions> options_to_repeat(
    const receipt::Receipt& claimed, SessionOptions options,
    const std::optional<std::string>& named_plugin);

}  // namespace tessera::run
