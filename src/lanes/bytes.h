// lanes/bytes.h: how many bytes a call takes, estimated before it is prepared.
#pragma once

#include "tessera/attention.h"
#include "tessera/batch.h"
#include "tessera/dispatch.h"

namespace tessera::lanes {

// Bytes of a call's arrays, for elements of `width` bytes. A double: sizes are
// unchecked here and their product could overflow an integer.
double call_bytes(const Request& request, const AttentionCall& call,
                  double width);

// About how many bytes a lane takes beside the caller's arrays. `elsewhere`:
// the plugin's device has a memory of its own.
double lane_bytes(LaneId lane, const Request& request,
                  const AttentionCall& call, bool elsewhere = false);

// Bytes that sink telemetry adds once the batch is known, on the lanes that
// plan the first keys: a copy of the facts, and that plan, which is at most the
// batch's own lists plus one span of keys for each query.
double sink_batch_bytes(LaneId lane, const Batch& batch,
                        const AttentionCall& call);

}  // namespace tessera::lanes
