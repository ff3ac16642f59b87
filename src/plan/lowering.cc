// plan/lowering.cc: the work paid when tiles are padded to whole granules, and
// when a tile needs a lowering reason.
#include "base/fail.h"
#include "base/integers.h"
#include "base/text.h"
#include "plan/logical_block.h"
#include "tessera/machine.h"

namespace tessera {

double PaidWork::factor() const {
  if (pairs == 0) return 1;
  return static_cast<double>(paid) / static_cast<double>(pairs);
}

PaidWork paid_work(const Tile& tile, int64_t granule, int64_t tiles) {
  return {tiles * tile.q * tile.kv,
          tiles * round_up(tile.q, granule) * round_up(tile.kv, granule)};
}

bool is_below_granule(const Tile& tile, int64_t granule) {
  return tile.q < granule || tile.kv < granule;
}

Result<void> check_lowering_reason(std::string_view where,
                                   std::string_view reason) {
  if (reason.empty() || reason.size() > kMaxLoweringReason) {
    return invalid(where,
                   "a lowering reason must be of 1 to {} bytes, found {}",
                   kMaxLoweringReason, reason.size());
  }
  if (on_a_line(reason) != reason ||
      reason.find_first_not_of(' ') == std::string_view::npos) {
    return invalid(where,
                   "a lowering reason must be a line of printable UTF-8, found "
                   "{}",
                   in_quotes(reason));
  }
  return {};
}

Result<Lowering> lower_tile(std::string_view where, const Tile& tile,
                            const Tile& logical_block, const Chip& chip,
                            const std::optional<std::string>& reason) {
  const Tile block = plan::block_or_tile(logical_block, tile);
  const bool small_tile = is_below_granule(tile, chip.granule);
  const bool below = small_tile || is_below_granule(block, chip.granule);
  if (below && !reason) {
    if (!small_tile) {
      return invalid(
          where,
          "a logical block below the granule of {}, {}x{}, must come with a "
          "lowering reason, found none for {}x{} in tiles of {}x{}",
          chip.name, chip.granule, chip.granule, block.q, block.kv, tile.q,
          tile.kv);
    }
    return invalid(
        where,
        "a tile below the granule of {}, {}x{}, must come with a lowering "
        "reason, found none for {}x{}, which pays {:.3g} times its work",
        chip.name, chip.granule, chip.granule, tile.q, tile.kv,
        paid_work(tile, chip.granule).factor());
  }
  if (!reason) return Lowering{std::string(chip.name), chip.granule, tile, {}};
  if (auto e = check_lowering_reason(where, *reason); !e) return e.error();
  if (!below) {
    return invalid(where,
                   "a lowering reason goes with a tile or a logical block "
                   "below the granule of {}, {}x{}, found one for {}x{}",
                   chip.name, chip.granule, chip.granule, tile.q, tile.kv);
  }
  return Lowering{std::string(chip.name), chip.granule, tile, reason};
}

}  // namespace tessera
