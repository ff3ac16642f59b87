// lanes/jax_bridge/splash.h: an artifact that says it is JAX's Splash kernel
// with the arrays of its MaskInfo as arguments.
#pragma once

#include "base/json_read.h"
#include "tessera/bridge.h"

namespace tessera::bridge {

// Its declaration, `splash` in the file of shapes, whose arrays are read.
Result<BridgeSplash> read_splash(const Json& value, const BridgeSpec& spec);

// The same of a spec that anybody made: sizes are those of its arrays.
Result<BridgeSplash> splash_of(const BridgeSpec& spec);

}  // namespace tessera::bridge
