// run/features.h: what a call of a session asks of a lane.
#pragma once

#include "tessera/session.h"

namespace tessera::run {

// The artifact and the mesh are those of the options.
CallFeatures call_features(const AttentionCall& call,
                           const SessionOptions& options = {});
// What a call has of an artifact.
void take_artifact(const BridgeSpec& spec, CallFeatures& out);

}  // namespace tessera::run
