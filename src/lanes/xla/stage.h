// lanes/xla/stage.h: a shard's own tokens, out of the arrays of a call and back
// into them.
#pragma once

#include <cstdint>
#include <vector>

#include "lanes/xla/shard_frame.h"
#include "tessera/attention.h"
#include "tessera/shard.h"

namespace tessera::xla {

// Bytes of a device's part of an array.
using Part = std::vector<uint8_t>;

// An array of the call, which may have any strides.
struct CallArray {
  TensorView view;
  void* to = nullptr;   // its data, where it is written
  bool by_rows = true;  // its tokens are queries
  float beyond = 0;     // of tokens that are not there; else zeros
};

Part stage(const ShardFrame& frame, const Shard& shard, const Type& part,
           const CallArray& from);
void unstage(const ShardFrame& frame, const Shard& shard, const Part& from,
             const CallArray& to);

}  // namespace tessera::xla
