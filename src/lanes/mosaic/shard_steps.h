// lanes/mosaic/shard_steps.h: a device's steps, split by call (shards.h).
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
  int64_t shift = 0;          // device column less the call's column
  std::vector<int32_t> rows;  // `rows` of a call in parts (shape.h)
};
// Backward, every list has a step in each call, with chunks of queries every
// chunk of a list; no column is in two calls.
Result<std::vector<CallSteps>> steps_of_calls(
    const Batch& batch, const VetoedTiles& vetoed, const Shards& shards,
    size_t index, const MosaicKernel& kernel, const std::vector<Turn>& turns);

}  // namespace tessera::mosaic
