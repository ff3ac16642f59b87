// shard/pack.cc: a shard's worklist as packed steps.
#include <algorithm>

#include "base/fail.h"
#include "plan/batch_state.h"
#include "plan/step_word.h"
#include "tessera/shard.h"

namespace tessera {
namespace {

// Per tile: whether its row has steps, and whether the tile is whole.
struct Side {
  std::vector<uint8_t> runs, whole;
};

Side side_of(const std::vector<TileAt>& tiles, int64_t whole_tiles,
             const std::vector<uint8_t>* computes) {
  Side out;
  for (size_t i = 0; i < tiles.size(); ++i) {
    const bool real = tiles[i].tile >= 0;
    out.runs.push_back(computes ? (*computes)[i] : real);
    out.whole.push_back(tiles[i].tile < whole_tiles);
  }
  return out;
}

}  // namespace

Result<Steps> pack_shard(const Batch& batch, const Shards& shards,
                         int64_t index, bool transposed) {
  auto read = plan::read_batch(batch, "shard");
  if (!read) return read.error();
  const auto count = static_cast<int64_t>(shards.shards.size());
  if (index < 0 || index >= count) {
    return invalid("shard", "a shard must be between 0 and {}, found {}",
                   count - 1, index);
  }
  const Shard& s = shards.shards[static_cast<size_t>(index)];
  const Worklist& w = transposed ? s.transposed : s.forward;
  const int64_t most = std::max(w.rows, w.columns);
  if (most > kMaxStepRows) {
    return over_limit("shard",
                      "packed steps count at most {} tile rows or columns of a "
                      "shard, found {} (use a larger tile or more shards)",
                      kMaxStepRows, most);
  }
  const Request& request = batch.request();
  Side rows = side_of(s.rows, request.q_len / request.tile.q, &s.computes);
  Side columns = side_of(s.columns, request.kv_len / request.tile.kv, nullptr);
  if (transposed) std::swap(rows, columns);
  Steps out;
  out.range.push_back(0);
  for (int64_t l = 0; l < w.lists; ++l) {
    for (int64_t r = 0; r < w.rows && l < s.lists; ++r) {
      const auto i = static_cast<size_t>(r);
      if (!rows.runs[i]) continue;
      const auto is_whole = [&](int64_t column) {
        return rows.whole[i] && columns.whole[static_cast<size_t>(column)];
      };
      plan::append_row(r, w.row(l, r), 1, is_whole, out.steps);
    }
    out.range.push_back(static_cast<uint32_t>(out.steps.size()));
  }
  return out;
}

}  // namespace tessera
