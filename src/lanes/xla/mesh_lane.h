// lanes/xla/mesh_lane.h: a lane over a mesh of devices, for any program that
// computes attention on each. Devices are opened once, a batch is spread once.
#pragma once

#include <functional>
#include <memory>

#include "lanes/lane.h"
#include "lanes/xla/open_mesh.h"
#include "lanes/xla/shard_work.h"

namespace tessera::xla {

// Compiles the passes of a call and sends the integers that they read.
using AddPasses =
    std::function<Result<void>(ShardWork& work, const AttentionCall& call)>;

std::unique_ptr<lanes::OpenLane> mesh_lane(LaneName name,
                                           std::shared_ptr<const OpenMesh> open,
                                           AddPasses add_passes);

}  // namespace tessera::xla
