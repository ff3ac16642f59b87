// tessera/lowering.h: what a TPU's matrix unit pays for a tile, and why one
// that is smaller than the unit may be lowered to it (docs/mosaic.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/chips.h"
#include "tessera/plan.h"
#include "tessera/result.h"

namespace tessera {

// Pairs of a query and a key of so many tiles, and those of the whole granules
// around each: a product with a side of 128 takes a unit of 256 as one of 256
// does. It is arithmetic, not a measured time.
struct PaidWork {
  int64_t pairs = 0;
  int64_t paid = 0;

  double factor() const;  // paid over pairs; 1 where there are none
};
PaidWork paid_work(const Tile& tile, int64_t granule, int64_t tiles = 1);

// A tile as it was lowered to a chip, for contracts and receipts.
struct Lowering {
  std::string chip;     // "v6e"
  int64_t granule = 0;  // a side of its matrix unit
  Tile tile;
  std::optional<std::string> reason;  // of a tile or a block that is smaller
};

// A side of the tile, or of a logical block, is below the granule.
bool is_below_granule(const Tile& tile, int64_t granule);

// Printable UTF-8 on one line that says something.
inline constexpr size_t kMaxLoweringReason = 200;  // bytes
Result<void> check_lowering_reason(std::string_view where,
                                   std::string_view reason);

// A tile or a logical block below the chip's granule must have a reason; one
// for others is refused, so that a reason in a contract or a receipt is always
// one that was due. A side of 0 of the block is the tile's. `where` begins the
// error: "mosaic".
Result<Lowering> lower_tile(std::string_view where, const Tile& tile,
                            const Tile& logical_block, const Chip& chip,
                            const std::optional<std::string>& reason);

}  // namespace tessera
