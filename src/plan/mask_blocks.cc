// plan/mask_blocks.cc: token masks of partial tiles as bytes, with a mask
// number for each cell of a rectangle.
#include <algorithm>

#include "plan/batch_state.h"
#include "plan/bitmaps.h"
#include "plan/rectangle.h"

namespace tessera {
namespace {

constexpr std::string_view kWhere = "mask_blocks";

// Unpacks the bits of each tile to bytes [q, kv]; transposed: [kv, q].
std::vector<uint8_t> unpack(const Bitmaps& bitmaps, const Tile& tile,
                            bool transposed) {
  const auto per_tile = static_cast<size_t>(bitmaps.words_per_tile);
  const auto q_len = static_cast<size_t>(tile.q);
  const auto kv_len = static_cast<size_t>(tile.kv);
  const size_t distinct = bitmaps.words.size() / per_tile;
  std::vector<uint8_t> blocks(distinct * q_len * kv_len);
  for (size_t n = 0; n < distinct; ++n) {
    const uint64_t* const words = bitmaps.words.data() + n * per_tile;
    uint8_t* const block = blocks.data() + n * q_len * kv_len;
    for (size_t q = 0; q < q_len; ++q) {
      for (size_t k = 0; k < kv_len; ++k) {
        const size_t bit = q * kv_len + k;
        block[transposed ? k * q_len + q : bit] =
            static_cast<uint8_t>(words[bit / 64] >> (bit % 64) & 1);
      }
    }
  }
  return blocks;
}

// Reorders the numbers of the forward entries to the transposed entries. Both
// orders visit a column from the first row to the last.
std::vector<int32_t> transpose_numbers(const Plan& plan,
                                       const std::vector<int32_t>& of_entry) {
  const Worklist& w = plan.forward;
  const Worklist& t = plan.transposed;
  std::vector<int32_t> out(t.entries.size());
  std::vector<uint32_t> next(t.row_start.begin(), t.row_start.end());
  size_t at = 0;
  for (int64_t list = 0; list < w.lists; ++list) {
    for (int64_t r = 0; r < w.rows; ++r) {
      for (const Entry e : w.row(list, r)) {
        const auto row = static_cast<size_t>(list * t.rows + e.column());
        out[next[row]++] = of_entry[at++];
      }
    }
  }
  return out;
}

}  // namespace

Result<MaskBlocks> make_mask_blocks(const Batch& batch, bool transposed,
                                    int64_t width) {
  auto read = plan::read_batch(batch, kWhere);
  if (!read) return read.error();
  const Plan& plan = (*read)->plan;
  const Worklist& w = transposed ? plan.transposed : plan.forward;
  auto cells = plan::count_cells(w, width, kWhere);
  if (!cells) return cells.error();
  auto bitmaps = plan::make_bitmaps_of(
      **read, 0, plan.batch, {plan.tile.q * plan.tile.kv, kMaxLayoutBytes},
      kWhere);
  if (!bitmaps) return bitmaps.error();
  if (transposed) {
    bitmaps->of_entry = transpose_numbers(plan, bitmaps->of_entry);
  }
  MaskBlocks out;
  out.rows = transposed ? plan.tile.kv : plan.tile.q;
  out.columns = transposed ? plan.tile.q : plan.tile.kv;
  out.blocks = unpack(*bitmaps, plan.tile, transposed);
  out.mask_next.assign(static_cast<size_t>(*cells), 0);
  for (size_t r = 0; r + 1 < w.row_start.size(); ++r) {
    size_t at = r * static_cast<size_t>(width);
    for (uint32_t i = w.row_start[r]; i < w.row_start[r + 1]; ++i, ++at) {
      out.mask_next[at] = std::max(bitmaps->of_entry[i], 0);
    }
  }
  return out;
}

}  // namespace tessera
