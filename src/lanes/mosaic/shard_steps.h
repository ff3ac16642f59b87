// lanes/mosaic/shard_steps.h: a device's steps by the calls that take them
// (shards.h).
#pragma once

#include <cstdint>
#include <vector>

#include "lanes/mosaic/shards.h"
#include "tessera/layouts.h"
#include "tessera/shard.h"

namespace tessera::mosaic {

struct CallSteps {
  Steps steps;
  std::vector<int32_t> bits_of;  // as many as of all steps
  std::vector<int32_t> rows;     // of a call in parts (shape.h)
};
// `steps` are all of the device, in the order and with the classes in which a
// kernel takes them, and `bits_of` the number of each one's bitmap. Of every
// list a call has a step, backward.
std::vector<CallSteps> steps_of_calls(const Shard& shard,
                                      const ShardShapes& shapes,
                                      const std::vector<Turn>& turns,
                                      bool backward, const Steps& steps,
                                      const std::vector<int32_t>& bits_of);

}  // namespace tessera::mosaic
