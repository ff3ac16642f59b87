// lanes/bytes.h: what calls take, before any of it is there.
#pragma once

#include "tessera/attention.h"
#include "tessera/batch.h"
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

// What it takes besides once the batch is known: of sink telemetry on our own
// lanes the copied facts, and what is planned of the first keys, which is no
// more than the batch's own lists and a span of keys for each query.
double sink_batch_bytes(LaneId lane, const Batch& batch,
                        const AttentionCall& call);

}  // namespace tessera::lanes
