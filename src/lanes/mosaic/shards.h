// lanes/mosaic/shards.h: one program for all devices of a mesh, each of which
// attends by one call of the kernel.
#pragma once

#include <string>
#include <vector>

#include "lanes/mosaic/call.h"
#include "lanes/xla/shard_frame.h"
#include "tessera/shard.h"

namespace tessera::mosaic {

struct ShardKernel {
  PlannedKernel planned;  // of each device
  xla::ShardFrame frame;
};
// Its contract names how the program's arrays lie.
Result<ShardKernel> plan_shards(const Batch& batch, const Shards& shards,
                                const AttentionCall& call,
                                const std::string& target,
                                const MosaicOptions& options);

xla::ShardArrays arrays_of(const ShardKernel& kernel);
std::string program_of(const ShardKernel& kernel,
                       const KernelCall& attend = call_kernel);

}  // namespace tessera::mosaic
