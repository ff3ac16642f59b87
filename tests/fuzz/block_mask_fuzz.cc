// tests/fuzz/block_mask_fuzz.cc: bytes as a block mask are either refused, or
// give the lists that a loop over the cells makes, on every ISA.
//
// Input: one byte each for packed or not, lists, rows, columns; then the cells.
#include <vector>

#include "tessera/layouts.h"
#include "tests/fuzz/must.h"

using namespace tessera;

namespace {

void check_list(const Worklist& w, const BlockMask& m, bool transposed) {
  must(w.lists == m.lists);
  must(w.rows == (transposed ? m.columns : m.rows));
  must(w.columns == (transposed ? m.rows : m.columns));
  for (int64_t l = 0; l < w.lists; ++l) {
    for (int64_t r = 0; r < w.rows; ++r) {
      size_t at = 0;
      const auto row = w.row(l, r);
      for (int64_t k = 0; k < w.columns; ++k) {
        const int64_t line = l * m.rows + (transposed ? k : r);
        const int64_t c = transposed ? r : k;
        const auto* cells = m.cells.data() + line * m.row_bytes();
        if (m.packed ? (cells[c / 8] >> (c % 8) & 1) == 0 : cells[c] == 0) {
          continue;
        }
        must(at < row.size() && row[at++] == Entry::of(k, TileClass::full));
      }
      must(at == row.size());
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  size_t at = 0;
  const auto next = [&] { return at < size ? data[at++] : uint8_t{0}; };
  BlockMask mask;
  mask.packed = next() % 2 != 0;
  mask.lists = static_cast<int8_t>(next()) % 4;
  mask.rows = next();
  mask.columns = next();
  std::vector<uint8_t> cells(data + at, data + size);
  // If the sizes are valid, missing cells are inactive.
  const int64_t want = mask.lists * mask.rows * mask.row_bytes();
  if (want > 0 && next() % 4 != 0) cells.resize(static_cast<size_t>(want), 0);
  mask.cells = cells;

  for (const Isa isa : machine_isas()) {
    BlockLists lists;
    const auto made = worklists_of_blocks(mask, lists, {kMaxTiles, isa});
    if (!made) {
      must(made.error().message.starts_with("[blocks] "));
      continue;
    }
    check_list(lists.forward, mask, false);
    check_list(lists.transposed, mask, true);
  }
  return 0;
}
