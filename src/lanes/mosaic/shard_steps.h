// lanes/mosaic/shard_steps.h: a device's steps by the calls that take them
// (shards.h).
#pragma once

#include <cstdint>
#include <vector>

#include "lanes/mosaic/kernel_steps.h"
#include "lanes/mosaic/shards.h"
#include "tessera/layouts.h"
#include "tessera/shard.h"

namespace tessera::mosaic {

struct CallSteps {
  Steps steps;
  int64_t shift = 0;          // of the device's columns, what its numbers lack
  std::vector<int32_t> rows;  // of a call in parts (shape.h)
};
// Backward, every list has a step in each call; in chunks of queries every
// chunk of it, and no column is in two calls.
Result<std::vector<CallSteps>> steps_of_calls(
    const Batch& batch, const VetoedTiles& vetoed, const Shards& shards,
    size_t index, const MosaicKernel& kernel, const std::vector<Turn>& turns);

}  // namespace tessera::mosaic
