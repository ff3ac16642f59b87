// lanes/xla/stage.h: copies a shard's own tokens from the arrays of a call, and
// back into them.
#pragma once

#include <cstdint>
#include <vector>

#include "lanes/xla/shard_frame.h"
#include "tessera/attention.h"
#include "tessera/shard.h"

namespace tessera::xla {

// The bytes of a device's part of an array.
using Part = std::vector<uint8_t>;

// An array of the call, which may have any strides.
struct CallArray {
  TensorView view;
  void* to = nullptr;   // the data to write; null: only read
  bool by_rows = true;  // the tokens are queries
  float beyond = 0;     // the value of padding; float32 if not 0
};

Part stage(const ShardFrame& frame, const Shard& shard, const Type& part,
           const CallArray& from);
void unstage(const ShardFrame& frame, const Shard& shard, const Part& from,
             const CallArray& to);

}  // namespace tessera::xla
