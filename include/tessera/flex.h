// tessera/flex.h: a plan as PyTorch FlexAttention's BlockMask arrays.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/plan.h"

namespace tessera {

// One num_blocks, indices pair of a BlockMask: int32, C order. A row of
// indices is a permutation of all blocks: the first num_blocks are the listed
// ones ascending, the others follow, ascending too.
struct FlexLists {
  std::vector<int32_t> num_blocks;  // [batch, heads, rows]
  std::vector<int32_t> indices;     // [batch, heads, rows, columns]

  bool operator==(const FlexLists&) const = default;
};

// As create_block_mask makes it with BLOCK_SIZE (tile.q, tile.kv). Flex pads
// both lengths to whole blocks with illegal pairs, so a full tile that crosses
// q_len or kv_len stands among the partial ones.
struct FlexBlockMask {
  int64_t batch = 1;
  int64_t heads = 1;
  int64_t rows = 0;
  int64_t columns = 0;
  FlexLists kv;       // kv_num_blocks, kv_indices: partial tiles
  FlexLists full_kv;  // full_kv_num_blocks, full_kv_indices
  FlexLists q;        // transposed: rows are key tiles, columns query tiles
  FlexLists full_q;
};

// Flex takes masks of one head or of every query head: a plan of several heads
// is repeated over `heads`, which they must divide. 0: the plan's own.
// The arrays are dense, so more than kMaxTiles indices each is an error.
Result<FlexBlockMask> make_flex(const Plan& plan, int64_t heads = 0);

}  // namespace tessera
