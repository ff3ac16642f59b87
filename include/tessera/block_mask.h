// tessera/block_mask.h: a mask that is whole blocks and nothing else, a byte or
// a bit each, to both worklists.
//
//   BlockLists lists;  // kept: its memory serves every call
//   worklists_of_blocks({cells, heads, rows, columns}, lists);
//
// The lists are for a kernel of one's own. A Batch, which lanes take, has such
// a mask as the picks of `blocks(n)`, with whatever else the mask says.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tessera/layouts.h"
#include "tessera/machine.h"
#include "tessera/plan.h"
#include "tessera/result.h"

namespace tessera {

// Which blocks of each list (a head of a batch row) are active: [lists, rows,
// columns] in C order.
struct BlockMask {
  // A byte a block, 0 where it is not active. Packed: a bit a block, lowest
  // first; each row begins at a byte, and the bits behind its columns are 0.
  std::span<const uint8_t> cells;
  int64_t lists = 1;
  int64_t rows = 0;
  int64_t columns = 0;
  bool packed = false;

  int64_t row_bytes() const { return packed ? (columns + 7) / 8 : columns; }
};

// Every entry is of the class full.
struct BlockLists {
  Worklist forward;
  Worklist transposed;
  std::vector<uint64_t> scratch;
};

struct BlockOptions {
  int64_t max_tiles =
      kMaxTiles;           // active blocks of all lists; more is an error
  std::optional<Isa> isa;  // as in CpuOptions
};

// On one thread. On an error the lists are as they were.
Result<void> worklists_of_blocks(const BlockMask& mask, BlockLists& lists,
                                 const BlockOptions& options = {});

// The same blocks as facts, of a mask that names blocks(n): a block is n
// queries and n keys, and `mask` has as many lists as picks have heads, for
// each batch row. A query's picks are those of its block row: 4 bytes for each
// query, head and block of the widest row, so at most kMaxLayoutBytes.
Result<TopkPicks> picks_from_blocks(const BlockMask& mask,
                                    const Request& request);

}  // namespace tessera
