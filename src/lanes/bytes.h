// lanes/bytes.h: what calls take, before any of it is there.
#pragma once

#include "tessera/attention.h"
#include "tessera/dispatch.h"

namespace tessera::lanes {

// Bytes of the arrays of a call whose elements are of this width, as a double:
// sizes may be absurd.
double call_bytes(const Request& request, const AttentionCall& call,
                  double width);

// What a lane takes beside the arrays, about. `elsewhere`: its plugin's device
// has a memory of its own.
double lane_bytes(LaneId lane, const Request& request,
                  const AttentionCall& call, bool elsewhere = false);

}  // namespace tessera::lanes
