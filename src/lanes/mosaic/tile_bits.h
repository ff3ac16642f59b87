// lanes/mosaic/tile_bits.h: which pairs of a tile are legal, as bits, for masks
// that bounds and ids cannot express.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "plan/batch_state.h"
#include "tessera/layouts.h"
#include "tessera/mosaic.h"
#include "tessera/shard.h"

namespace tessera::mosaic {

// The numbered bitmaps of a batch's tiles: those of no pair and of all pairs,
// those of the plan's partial tiles, equal ones once, and those of full tiles
// that a length cuts short. Batch and kernel must outlive the object.
class TileBitmaps {
 public:
  static Result<TileBitmaps> make(const Batch::State& batch,
                                  const MosaicKernel& kernel);

  // Number of the bitmap of row r and column c of the forward list.
  int64_t number_of(int64_t list, int64_t r, int64_t c);
  int64_t count() const {
    return first_corner_ + static_cast<int64_t>(corners_.size());
  }
  // Writes a bitmap as the kernel reads it (shape.h); `bitmap` must be all 0.
  void write(int64_t number, std::span<int32_t> bitmap) const;

 private:
  using Corner = std::pair<int64_t, int64_t>;  // queries, keys

  TileBitmaps(const Plan& plan, const MosaicKernel& kernel, Bitmaps bitmaps);

  const Plan& plan_;
  const MosaicKernel& kernel_;
  Bitmaps bitmaps_;
  int64_t first_corner_ = 0;
  std::map<Corner, int64_t> corner_numbers_;
  std::vector<Corner> corners_;
};

// Bitmaps as the kernel reads them (shape.h).
struct TileBits {
  std::vector<int32_t> of_step;  // [kernel.steps]
  std::vector<int32_t> words;    // [kernel.bitmaps, bit_rows, tile.q]
};
// `steps` are the batch's, of the kernel's direction.
Result<TileBits> make_tile_bits(const Batch::State& batch, const Steps& steps,
                                const MosaicKernel& kernel);
int64_t bitmap_words(const MosaicKernel& kernel);
// The bitmaps that the steps of all calls of a device need, under the device's
// own numbers. A call's column is the device's less `shift`. Returns for each
// call the bitmap number of each step, [kernel.steps]; writes the bitmaps to
// `words`, all 0 before: [kernel.bitmaps, bit_rows, tile.q].
struct CallTiles {
  const Steps* steps = nullptr;
  int64_t shift = 0;
};
Result<std::vector<std::vector<int32_t>>> make_shard_bits(
    TileBitmaps& bitmaps, const Shard& shard, int64_t plan_heads,
    std::span<const CallTiles> calls, const MosaicKernel& kernel,
    std::span<int32_t> words);

}  // namespace tessera::mosaic
