// run/device_memory.h: whether a call has room on the TPU that its lane runs
// on.
#pragma once

#include "lanes/lane.h"
#include "tessera/batch.h"
#include "tessera/dispatch.h"

namespace tessera::run {

// Called before a lane compiles or sends anything. Passes every device that is
// not a known TPU, and every lane that has no budget (tessera/fit.h).
Result<void> check_device_memory(const Batch& batch, const AttentionCall& call,
                                 LaneId lane, const lanes::LaneOptions& options,
                                 const PluginPlace* place);

}  // namespace tessera::run
