// lanes/mosaic/kernel_steps.h: a batch's steps in the order and with the
// classes in which a kernel takes them.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/integers.h"
#include "mask/bind.h"
#include "tessera/layouts.h"
#include "tessera/mosaic.h"

namespace tessera::mosaic {

// Backward, the steps are those of the transposed plan. Forward, a pass is
// masked if one of its tiles is not full, so a row's full tiles come first; a
// softmax may take its keys in any order. The classes are then
//   0  filler, which completes a pass
//   1  masked
//   2  full
//   3  masked, with keys that a veto takes, whose values may be NaN
// and class 3 comes last. Filler names the row's first tile, which is of class
// 3 only if every tile of the row is. Where a kernel takes a list in chunks,
// each chunk's steps form a list. An error where the plan's tile or heads are
// not the kernel's, or where one of the plan's sizes exceeds the kernel's; the
// mask is not checked.
Result<Steps> kernel_steps(const mask::Bound& bound, const Plan& plan,
                           const MosaicKernel& kernel);

// Cuts each transposed list into `chunks` chunks of `rows` tile rows (columns
// of a transposed step), one after another. Every column from the list's first
// on must have a step. A chunk has every column from its first to its last, and
// one step at least; first and last never fall from chunk to chunk, and every
// column is in some chunk.
Steps cut_steps(const Steps& steps, int64_t rows, int64_t chunks);
// Columns [first, end) of a chunk of such a list. No earlier chunk has columns
// from `begins` on; no later chunk has columns before `ends`.
struct ChunkColumns {
  int64_t first = 0, end = 0, begins = 0, ends = 0;
};
ChunkColumns chunk_columns(const Steps& steps, size_t chunk, size_t chunks);

inline int64_t chunks_of(const MosaicKernel& kernel) {
  return kernel.query_chunk == 0 ? 1
                                 : ceil_div(kernel.q_len, kernel.query_chunk);
}
// Cuts the lists into the kernel's chunks, if it has any.
void cut_for(const MosaicKernel& kernel, Steps& steps);
// Number of step ranges: one for each chunk of each list.
inline int64_t step_lists(const MosaicKernel& kernel) {
  return kernel.batch * kernel.plan_heads * chunks_of(kernel);
}

// Pages that the kernel has room for in each step range.
inline int64_t pages_of_list(const MosaicKernel& kernel) {
  if (kernel.page == 0) return 1;
  return kernel.steps / kernel.page / step_lists(kernel);
}
// Steps that are in scalar memory at once, whole rows: each list's pages in
// order, then empty ones up to pages_of_list(); without pages, each list.
struct StepRange {
  size_t begin = 0, end = 0;
};
Result<std::vector<StepRange>> page_ranges(const Steps& steps,
                                           const MosaicKernel& kernel);
// Writes `steps` and `range`, and moves bits_of, one number per step, to where
// the kernel reads it. Batch rows beyond the batch's own have no steps.
Result<void> place_steps(const Steps& steps, const MosaicKernel& kernel,
                         MosaicArrays& out);
// The number of steps, from the `range` that place_steps writes.
int64_t steps_in(const MosaicKernel& kernel, std::span<const int32_t> range);

// For each tile of keys of each batch row: whether a veto takes one of its
// keys, or the tile extends beyond the last key.
using VetoedTiles = std::vector<std::vector<bool>>;
VetoedTiles vetoed_tiles(const mask::Bound& bound);

// The steps of one device of a mesh, by local tile number: one result for each
// of `calls`, which says which tiles it takes (an empty function takes all).
// Forward, a row has no step if the device does not compute it or the call
// takes none of its tiles. Backward, each column up to the last has one.
using TakesTile = std::function<bool(int64_t row, int64_t column)>;
Result<std::vector<Steps>> shard_steps(
    const Batch& batch, const VetoedTiles& vetoed, const Shards& shards,
    size_t index, const MosaicKernel& kernel,
    const std::vector<TakesTile>& calls = {TakesTile()});

}  // namespace tessera::mosaic
