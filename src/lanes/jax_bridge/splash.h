// lanes/jax_bridge/splash.h: an artifact that declares JAX's Splash kernel,
// with the arrays of its MaskInfo as arguments.
#pragma once

#include "base/json_read.h"
#include "tessera/bridge.h"

namespace tessera::bridge {

// Parses `splash` of the file of shapes, for the arrays of `spec`.
Result<BridgeSplash> read_splash(const Json& value, const BridgeSpec& spec);

// The same for a spec from any source. Sizes come from its arrays.
Result<BridgeSplash> splash_of(const BridgeSpec& spec);

}  // namespace tessera::bridge
