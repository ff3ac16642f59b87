// tessera/flex.h: a plan as PyTorch FlexAttention's BlockMask arrays.
#pragma once

#include <cstdint>
#include <vector>

#include "tessera/plan.h"

namespace tessera {

// [batch, heads, rows] counts and [batch, heads, rows, columns] indices, the
// active ones first and ascending, then the rest ascending, as Flex orders it.
struct FlexLists {
  std::vector<int32_t> num_blocks;
  std::vector<int32_t> indices;
};

struct FlexBlockMask {
  int64_t batch = 1;
  int64_t heads = 1;
  int64_t rows = 0;
  int64_t columns = 0;
  FlexLists kv;       // partial; a ragged full tile counts as partial
  FlexLists full_kv;  // full
  FlexLists q;        // partial, transposed
  FlexLists full_q;   // full, transposed
};

Result<FlexBlockMask> make_flex(const Plan& plan);

}  // namespace tessera
