// plan/splash_run.cc: Splash's arrays sized by the ceilings of a run: JAX's
// rectangle and tokamax's list.
#include "plan/splash_run.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fail.h"

namespace tessera {
namespace {

constexpr std::string_view kWhere = "splash";

size_t index(int64_t i) { return static_cast<size_t>(i); }

// The axis of a grid that shrinking shortens, and the other axis.
size_t slots_axis(bool dkv) { return dkv ? 1 : 2; }
size_t lines_axis(bool dkv) { return dkv ? 2 : 1; }

// Extends `from` to `size` along one axis. New slots repeat the last one if
// `repeats`, else hold 0.
SplashArray lengthen(const SplashArray& from, size_t axis, int64_t size,
                     bool repeats) {
  SplashArray out{from.type, from.shape, {}};
  out.shape[axis] = size;
  int64_t lines = 1;
  int64_t item = from.item_bytes();
  for (size_t i = 0; i < from.shape.size(); ++i) {
    if (i < axis) lines *= from.shape[i];
    if (i > axis) item *= from.shape[i];
  }
  const int64_t had = from.shape[axis] * item;
  out.bytes.resize(index(lines * size * item));
  for (int64_t line = 0; line < lines; ++line) {
    const uint8_t* const read = from.bytes.data() + line * had;
    uint8_t* to = out.bytes.data() + line * size * item;
    to = std::copy_n(read, had, to);
    if (!repeats) continue;
    for (int64_t slot = from.shape[axis]; slot < size; ++slot) {
      to = std::copy_n(read + had - item, item, to);
    }
  }
  return out;
}

// The capacity for `needed`: the bucket if no ceiling is set, else the ceiling,
// but at most `most` and at least `needed`.
int64_t room_for(int64_t needed, int64_t ceiling, int64_t most) {
  if (ceiling == 0) return bucket(needed);
  return std::max(needed, std::min(ceiling, most));
}

// An error if `bytes` of grids or lists and the tile masks exceed
// kMaxSplashBytes. The callers' products of sizes cannot overflow, since
// make_splash checked its sizes against the same limit.
Result<void> check_memory(int64_t bytes, int64_t blocks, const Tile& tile) {
  if (bytes <= kMaxSplashBytes &&
      blocks <= (kMaxSplashBytes - bytes) / (tile.q * tile.kv)) {
    return {};
  }
  return over_limit(kWhere, "the arrays must fit {} bytes, found more",
                    kMaxSplashBytes);
}

// The arrays of a batch row, and the tile masks to make room for.
struct Needed {
  SplashMaskInfo info;
  int64_t blocks = 0;
};

Result<Needed> find_needed(const Batch& batch, int64_t batch_row,
                           const SplashRun& run) {
  if (run.max_blocks < 0) {
    return invalid(kWhere, "max_blocks must be 0 or more, found {}",
                   run.max_blocks);
  }
  SplashOptions options;
  options.dkv = run.dkv;
  options.downcast = false;
  options.heads = run.heads;
  auto info = make_splash(batch, batch_row, options);
  if (!info) return info.error();
  const int64_t blocks =
      info->partial_mask_blocks ? info->partial_mask_blocks->shape[0] : 1;
  if (run.max_blocks > 0 && blocks > run.max_blocks) {
    return over_limit(
        kWhere,
        "distinct partial tiles must be at most max_blocks {}, found {}",
        run.max_blocks, blocks);
  }
  const Plan& plan = batch.plan();
  const int64_t tiles = plan.heads * plan.forward.rows * plan.forward.columns;
  return Needed{std::move(*info), room_for(blocks, run.max_blocks, tiles)};
}

// Extends the tile masks to `blocks`. If no tile is partial, adds mask 0 for
// all cells; the kernel never reads it.
void add_masks(SplashMaskInfo& info, const Tile& tile, bool dkv,
               int64_t blocks) {
  if (!info.partial_mask_blocks) {
    info.mask_next = info.data_next;
    std::ranges::fill(info.mask_next->bytes, uint8_t{0});
    SplashArray& none = info.partial_mask_blocks.emplace();
    none.type = SplashType::boolean;
    none.shape = {0, dkv ? tile.kv : tile.q, dkv ? tile.q : tile.kv};
  }
  info.partial_mask_blocks->shape[0] = blocks;
  info.partial_mask_blocks->bytes.resize(index(blocks * tile.q * tile.kv));
}

// Lists the active tiles of a grid with one mask, row by row.
TokamaxMaskInfo list_active(const SplashMaskInfo& info, bool dkv) {
  const int64_t rows = info.block_mask.shape[lines_axis(dkv)];
  const int64_t slots = info.block_mask.shape[slots_axis(dkv)];
  TokamaxMaskInfo out;
  const auto push = [&](int64_t row, int64_t column, int64_t tile_class,
                        int64_t mask) {
    out.active_rows.push_back(static_cast<int32_t>(row));
    out.active_cols.push_back(static_cast<int32_t>(column));
    out.block_mask.push_back(static_cast<int32_t>(tile_class));
    out.mask_next.push_back(static_cast<int32_t>(mask));
  };
  for (int64_t row = 0; row < rows; ++row) {
    const size_t before = out.active_rows.size();
    for (int64_t slot = 0; slot < slots; ++slot) {
      const int64_t at = dkv ? slot * rows + row : row * slots + slot;
      const int64_t tile_class = info.block_mask.at(at);
      if (tile_class == 0) continue;
      push(row, info.data_next.at(at), tile_class,
           info.mask_next ? info.mask_next->at(at) : 0);
    }
    if (dkv && out.active_rows.size() == before) push(row, 0, 0, 0);
  }
  out.num_active_blocks = static_cast<int64_t>(out.active_rows.size());
  return out;
}

}  // namespace

namespace plan {

SplashMaskInfo widen_splash(SplashMaskInfo info, const Tile& tile, bool dkv,
                            int64_t width, int64_t blocks) {
  add_masks(info, tile, dkv, blocks);
  const size_t axis = slots_axis(dkv);
  info.data_next = lengthen(info.data_next, axis, width, true);
  info.mask_next = lengthen(*info.mask_next, axis, width, true);
  info.block_mask = lengthen(info.block_mask, axis, width, false);
  return info;
}

}  // namespace plan

Result<SplashMaskInfo> make_splash_run(const Batch& batch, int64_t batch_row,
                                       const SplashRun& run) {
  auto needed = find_needed(batch, batch_row, run);
  if (!needed) return needed.error();
  const Plan& plan = batch.plan();
  const std::vector<int64_t>& grid = needed->info.block_mask.shape;
  const int64_t width =
      room_for(grid[slots_axis(run.dkv)], batch.request().ceilings.max_width,
               run.dkv ? plan.forward.rows : plan.forward.columns);
  // Three int32 arrays, before and after widening.
  const int64_t bytes = 24 * grid[0] * grid[lines_axis(run.dkv)] * width;
  if (auto e = check_memory(bytes, needed->blocks, plan.tile); !e) {
    return e.error();
  }
  return plan::widen_splash(std::move(needed->info), plan.tile, run.dkv, width,
                            needed->blocks);
}

Result<TokamaxMaskInfo> make_tokamax_run(const Batch& batch, int64_t batch_row,
                                         const SplashRun& run) {
  if (run.heads != 0) {
    return invalid(kWhere,
                   "heads must be 0 for tokamax, whose heads have one mask, "
                   "found {}",
                   run.heads);
  }
  auto needed = find_needed(batch, batch_row, run);
  if (!needed) return needed.error();
  SplashMaskInfo& info = needed->info;
  if (info.block_mask.shape[0] != 1) {
    return invalid(kWhere,
                   "tokamax's heads have one mask, found a batch with {}",
                   info.block_mask.shape[0]);
  }
  const Plan& plan = batch.plan();
  TokamaxMaskInfo out = list_active(info, run.dkv);
  const int64_t steps =
      room_for(out.num_active_blocks, batch.request().ceilings.max_steps,
               plan.forward.rows * plan.forward.columns);
  if (auto e = check_memory(16 * steps, needed->blocks, plan.tile); !e) {
    return e.error();
  }
  const int32_t last = out.mask_next.empty() ? 0 : out.mask_next.back();
  out.mask_next.resize(index(steps), last);  // so nothing new is fetched
  out.active_rows.resize(index(steps), -1);  // -1 ends the last row
  out.active_cols.resize(index(steps), -1);
  out.block_mask.resize(index(steps), 0);
  add_masks(info, plan.tile, run.dkv, needed->blocks);
  out.partial_mask_blocks = std::move(*info.partial_mask_blocks);
  out.partial_mask_blocks.type = SplashType::int8;
  return out;
}

}  // namespace tessera
