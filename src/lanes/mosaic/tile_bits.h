// lanes/mosaic/tile_bits.h: which pairs of a tile are legal, as bits, for masks
// that bounds and ids do not tell.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/batch_state.h"
#include "tessera/layouts.h"
#include "tessera/mosaic.h"

namespace tessera::mosaic {

// As the kernel reads them (shape.h): equal bitmaps stand there once, behind
// those of no pair and of all pairs.
struct TileBits {
  std::vector<int32_t> of_step;  // [kernel.steps]
  std::vector<int32_t> words;    // [kernel.bitmaps, bit_rows, tile.q]
};
// `steps` are the batch's, of the kernel's direction.
Result<TileBits> make_tile_bits(const Batch::State& batch, const Steps& steps,
                                const MosaicKernel& kernel);

}  // namespace tessera::mosaic
