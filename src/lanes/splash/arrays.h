// lanes/splash/arrays.h: the arrays that Splash's kernel reads beside q, k, v.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/batch.h"
#include "tessera/bridge.h"
#include "tessera/layouts.h"
#include "tessera/result.h"

namespace tessera::splash {

// The arrays of one batch row, padded to the kernel's ceilings.
struct RowArrays {
  // [mask heads, rows of tiles, width]
  std::vector<int32_t> data_next, mask_next, block_mask;
  std::vector<uint8_t> mask_blocks;   // [blocks, block_q, block_kv]
  std::vector<uint8_t> live_queries;  // [heads, q_len]: has a legal key
  std::vector<uint8_t> live_keys;     // [kv_heads, kv_len]: seen by a query
};

// The MaskInfo of a batch row, whose sizes must be the kernel's. Fails if it
// exceeds the kernel's ceilings.
Result<SplashMaskInfo> make_info(const Batch& batch, int64_t batch_row,
                                 const BridgeSplash& kernel);
// The same, padded to the kernel's ceilings, with the live queries and keys.
RowArrays make_arrays(SplashMaskInfo info, const BridgeSplash& kernel);

}  // namespace tessera::splash
