// plan/statistics.cc: counts over a plan, and over its logical blocks.
#include <algorithm>

#include "base/fail.h"
#include "mask/sweep.h"
#include "plan/batch_state.h"
#include "plan/logical_block.h"
#include "tessera/batch.h"
#include "tessera/layouts.h"

namespace tessera {
namespace {

struct Paid {
  int64_t blocks = 0;
  int64_t pairs = 0;
};

// Tokens of block `i` without padding.
int64_t tokens(int64_t i, int64_t block, int64_t length) {
  return std::min(block, length - i * block);
}

// Plans with another block size and keeps only counts: a list of logical blocks
// may exceed the limit of a worklist.
Result<Paid> plan_blocks(const mask::Sweep& of_tiles, Tile block) {
  const mask::Sweep sweep = mask::with_tile(of_tiles, block);
  const mask::Bound& bound = sweep.bound;
  const int64_t rows = sweep.rows();
  Paid paid;
  auto walked = sweep.each_list(
      [&](mask::Classifier& list, int64_t, int64_t) -> Result<void> {
        for (int64_t r = 0; r < rows; ++r) {
          const int64_t queries = tokens(r, block.q, bound.q_len);
          for (const mask::Span& s : list.tile_row(r)) {
            const int64_t begin = s.begin * block.kv;
            const int64_t end = std::min(s.end * block.kv, bound.kv_len);
            paid.blocks += s.end - s.begin;
            paid.pairs += queries * (end - begin);
          }
        }
        return {};
      });
  if (!walked) return walked.error();
  return paid;
}

void count_rows(const Plan& plan, Statistics& s) {
  const Worklist& w = plan.forward;
  std::vector<int64_t> rows_of(static_cast<size_t>(s.grid_width) + 1, 0);
  for (int64_t l = 0; l < w.lists; ++l) {
    for (int64_t r = 0; r < w.rows; ++r) {
      const std::span<const Entry> row = w.row(l, r);
      ++rows_of[row.size()];
      const int64_t queries = tokens(r, plan.tile.q, plan.q_len);
      for (const Entry e : row) {
        s.tiles_full += e.tile_class() == TileClass::full;
        s.pairs_paid += queries * tokens(e.column(), plan.tile.kv, plan.kv_len);
      }
    }
  }
  s.tiles_active = static_cast<int64_t>(w.entries.size());
  s.tiles_partial = s.tiles_active - s.tiles_full;
  s.empty_rows = rows_of[0];
  for (size_t n = 0; n < rows_of.size(); ++n) {
    if (rows_of[n] > 0) s.row_histogram[static_cast<int64_t>(n)] = rows_of[n];
  }
}

}  // namespace

Result<Statistics> make_statistics(const Batch& batch) {
  auto read = plan::read_batch(batch, "statistics");
  if (!read) return read.error();
  const Request& request = (*read)->request;
  const Plan& plan = (*read)->plan;
  const Tile block = plan::block_or_tile(request.logical_block, request.tile);
  for (int64_t n : {block.q, block.kv}) {
    if (n < kMinBlock || n > kMaxBlock) {
      return invalid("statistics",
                     "logical block must be 0 (the tile) or between {} and {}, "
                     "found {}x{}",
                     kMinBlock, kMaxBlock, request.logical_block.q,
                     request.logical_block.kv);
    }
  }

  Statistics s;
  const Worklist& w = plan.forward;
  // q_len * kv_len is at most 2^60; only a product with many lists overflows.
  // Legal and paid pairs are part of this total, so they fit too.
  if (__builtin_mul_overflow(plan.q_len * plan.kv_len, w.lists,
                             &s.pairs_total)) {
    return over_limit("statistics",
                      "pairs over all lists must fit 63 bits, found {} lists "
                      "of {} x {} for the plan",
                      w.lists, plan.q_len, plan.kv_len);
  }
  for (int64_t pairs : plan.legal_pairs) s.pairs_needed += pairs;
  s.tiles_total = w.lists * w.rows * w.columns;
  s.grid_width = grid_width(w);
  s.grid_width_transposed = grid_width(plan.transposed);
  count_rows(plan, s);
  const std::vector<uint32_t>& start = plan.transposed.row_start;
  for (size_t c = 0; c + 1 < start.size(); ++c) {
    s.empty_columns += start[c] == start[c + 1];
  }
  s.density =
      static_cast<double>(s.tiles_active) / static_cast<double>(s.tiles_total);

  s.logical_active = s.tiles_active;
  s.logical_paid = s.pairs_paid;
  if (block != plan.tile) {
    auto paid = plan_blocks((*read)->sweep, block);
    if (!paid) return paid.error();
    s.logical_active = paid->blocks;
    s.logical_paid = paid->pairs;
  }
  return s;
}

}  // namespace tessera
