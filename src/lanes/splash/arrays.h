// lanes/splash/arrays.h: what Splash's kernel reads beside q, k and v.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/batch.h"
#include "tessera/bridge.h"
#include "tessera/layouts.h"
#include "tessera/result.h"

namespace tessera::splash {

// Of one batch row, as large as the kernel's ceilings.
struct RowArrays {
  // [mask heads, rows of tiles, width]
  std::vector<int32_t> data_next, mask_next, block_mask;
  std::vector<uint8_t> mask_blocks;   // [blocks, block_q, block_kv]
  std::vector<uint8_t> live_queries;  // [heads, q_len]: it has a legal key
  std::vector<uint8_t> live_keys;     // [kv_heads, kv_len]: a query sees it
};

// Of the batch row, whose sizes are those of the kernel. More than its ceilings
// is an error.
Result<SplashMaskInfo> make_info(const Batch& batch, int64_t batch_row,
                                 const BridgeSplash& kernel);
// The same with all the room that the kernel has.
RowArrays make_arrays(SplashMaskInfo info, const BridgeSplash& kernel);

}  // namespace tessera::splash
