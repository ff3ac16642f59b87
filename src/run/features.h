// run/features.h: what a call of a session asks of a lane.
#pragma once

#include "tessera/session.h"

namespace tessera::run {

// The artifact and the mesh are those of the options.
CallFeatures call_features(const AttentionCall& call,
                           const SessionOptions& options = {});

}  // namespace tessera::run
