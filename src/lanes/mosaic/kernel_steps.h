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

// Backward the steps of the transposed plan as they are. Forward, a pass is
// masked where one of its tiles is not full, so a row's full tiles come first;
// a softmax takes its keys in any order. Classes are then
//   0  fills a pass up
//   1  masked
//   2  full
//   3  masked, with keys that a veto takes, whose values may be NaN
// and these last come last. What fills a pass up names the row's first tile: it
// has such keys only where every tile of the row has.
// Of a kernel that takes a list in chunks each chunk's follow as a list's do.
// An error where the plan is not of the kernel's tile and heads, or has more of
// anything than the kernel has room for; its mask is not looked at.
Result<Steps> kernel_steps(const mask::Bound& bound, const Plan& plan,
                           const MosaicKernel& kernel);

// Transposed lists, in which every column from the list's first on has a step,
// each cut into `chunks` of `rows` rows of tiles (columns of a transposed step)
// one after another. A chunk has all columns from its first to its last, one
// step at least; both rise from chunk to chunk, and every column is in one.
Steps cut_steps(const Steps& steps, int64_t rows, int64_t chunks);
// Of a list that was cut so: which columns a chunk has, and of them which no
// chunk before has, `begins` and beyond, and which none after, before `ends`.
struct ChunkColumns {
  int64_t first = 0, end = 0, begins = 0, ends = 0;
};
ChunkColumns chunk_columns(const Steps& steps, size_t chunk, size_t chunks);

inline int64_t chunks_of(const MosaicKernel& kernel) {
  return kernel.query_chunk == 0 ? 1
                                 : ceil_div(kernel.q_len, kernel.query_chunk);
}
// A batch's lists in the kernel's chunks, where it has any.
void cut_for(const MosaicKernel& kernel, Steps& steps);
// Those that have steps of their own: each list's chunks.
inline int64_t step_lists(const MosaicKernel& kernel) {
  return kernel.batch * kernel.plan_heads * chunks_of(kernel);
}

// What of a batch's steps is in scalar memory at once, whole rows each: of
// every list its pages in order, then as many empty ones as the kernel has room
// for. Of a kernel without pages, its lists.
inline int64_t pages_of_list(const MosaicKernel& kernel) {
  if (kernel.page == 0) return 1;
  return kernel.steps / kernel.page / step_lists(kernel);
}
struct StepRange {
  size_t begin = 0, end = 0;
};
Result<std::vector<StepRange>> page_ranges(const Steps& steps,
                                           const MosaicKernel& kernel);
// Writes steps and range, and moves bits_of, one for each of `steps`, to where
// the kernel reads them. Batch rows that are not there have no steps.
Result<void> place_steps(const Steps& steps, const MosaicKernel& kernel,
                         MosaicArrays& out);
// How many there are, by that range.
int64_t steps_in(const MosaicKernel& kernel, std::span<const int32_t> range);

// Of each batch row its tiles of keys: whether a veto takes one of these, or
// the last key lies before their end.
using VetoedTiles = std::vector<std::vector<bool>>;
VetoedTiles vetoed_tiles(const mask::Bound& bound);

// The same of one device of a mesh, in the numbers of its own tiles: steps for
// each of `calls`, which takes some of the tiles, or all. Forward, rows that it
// does not compute have no step, nor those without a tile that the call takes.
// Backward each column up to the last has one, padding too.
using TakesTile = std::function<bool(int64_t row, int64_t column)>;
Result<std::vector<Steps>> shard_steps(
    const Batch& batch, const VetoedTiles& vetoed, const Shards& shards,
    size_t index, const MosaicKernel& kernel,
    const std::vector<TakesTile>& calls = {TakesTile()});

}  // namespace tessera::mosaic
