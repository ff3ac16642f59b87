// lanes/jax_bridge/splash.h: an artifact that declares JAX's Splash kernel,
// with the arrays of its MaskInfo as arguments.
#pragma once

#include "base/json_read.h"
#include "tessera/bridge.h"

namespace tessera::bridge {

// Parses the declaration, `splash` in the file of shapes; `spec` has the
// arrays.
Result<BridgeSplash> read_splash(const Json& value, const BridgeSpec& spec);

// The same for a spec from any source. The sizes are read from its arrays
// again.
Result<BridgeSplash> splash_of(const BridgeSpec& spec);

}  // namespace tessera::bridge
