// kernels/blocks/block_mask.cc: allocates the lists and selects the kernel that
// fills them.
#include "kernels/blocks/block_mask.h"

#include "base/fail.h"
#include "base/integers.h"
#include "base/isa.h"
#include "base/trace.h"
#include "plan/block_mask.h"

namespace tessera {
namespace kernels {
namespace {

void size_list(const BlockMask& m, int64_t rows, int64_t columns, int64_t tiles,
               Worklist& list) {
  list.lists = m.lists;
  list.rows = rows;
  list.columns = columns;
  list.row_start.resize(static_cast<size_t>(m.lists * rows + 1));
  list.row_start[0] = 0;
  list.entries.resize(static_cast<size_t>(tiles));
}

uint32_t* entry_words(std::vector<Entry>& entries) {
  static_assert(sizeof(Entry) == sizeof(uint32_t));
  return entries.empty() ? nullptr : &entries.data()->word;
}

// Rows of bits, in the caller's mask or packed in scratch.
struct BitRows {
  const uint8_t* bits = nullptr;
  int64_t stride = 0;
  int64_t bytes = 0;  // of all rows
};

}  // namespace

Result<void> make_block_lists(const BlockMask& m, int64_t max_tiles,
                              const BlockVariant& variant, BlockLists& lists) {
  const int64_t rows = m.lists * m.rows;
  const int64_t words = ceil_div(m.columns, 64);
  const int64_t turned = block_scratch(m.rows);
  const auto scratch =
      static_cast<size_t>(turned + (m.packed ? 0 : rows * words));
  if (lists.scratch.size() < scratch) lists.scratch.resize(scratch);
  BitRows in{m.cells.data(), m.row_bytes(),
             static_cast<int64_t>(m.cells.size())};
  if (!m.packed) {
    uint64_t* const packed = lists.scratch.data() + turned;
    variant.pack(m.cells.data(), rows, m.columns, packed);
    in = {reinterpret_cast<const uint8_t*>(packed), 8 * words,
          8 * rows * words};
  }
  const int64_t tiles = variant.count(in.bits, in.bytes);
  if (tiles > max_tiles) {
    return over_limit("blocks", "active blocks must be at most {}, found {}",
                      max_tiles, tiles);
  }
  size_list(m, m.rows, m.columns, tiles, lists.forward);
  size_list(m, m.columns, m.rows, tiles, lists.transposed);
  BlockTask task;
  task.stride = in.stride;
  task.rows = m.rows;
  task.columns = m.columns;
  task.scratch = lists.scratch.data();
  task.forward = entry_words(lists.forward.entries);
  task.transposed = entry_words(lists.transposed.entries);
  task.tiles = tiles;
  for (int64_t l = 0; l < m.lists; ++l) {
    task.bits = in.bits + l * m.rows * in.stride;
    task.begin = lists.forward.row_start[static_cast<size_t>(l * m.rows)];
    task.row_end = lists.forward.row_start.data() + l * m.rows + 1;
    task.column_end = lists.transposed.row_start.data() + l * m.columns + 1;
    variant.make_lists(task);
  }
  return {};
}

}  // namespace kernels

Result<void> worklists_of_blocks(const BlockMask& mask, BlockLists& lists,
                                 const BlockOptions& options) {
  const TraceSpan span("plan", "block_mask");
  if (auto e = plan::check_block_mask(mask); !e) return e;
  if (options.max_tiles < 0 || options.max_tiles > kMaxTiles) {
    return invalid("blocks", "max_tiles must be from 0 to {}, found {}",
                   kMaxTiles, options.max_tiles);
  }
  const auto isa = choose_isa(options.isa);
  if (!isa) return isa.error();
  return kernels::make_block_lists(mask, options.max_tiles,
                                   kernels::block_variant(*isa), lists);
}

}  // namespace tessera
