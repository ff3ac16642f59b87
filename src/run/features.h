// run/features.h: what a call of a session asks of a lane.
#pragma once

#include "tessera/session.h"

namespace tessera::run {

// The artifact, the mesh and `numbers` come from the options.
CallFeatures call_features(const AttentionCall& call,
                           const SessionOptions& options = {});
// Fills the fields of a call that describe its artifact.
void take_artifact(const BridgeSpec& spec, CallFeatures& out);

}  // namespace tessera::run
