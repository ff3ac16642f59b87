// cli/lowering.cc: a Lowering as text and JSON.
#include "cli/lowering.h"

#include <fmt/format.h>

#include "base/text.h"

namespace tessera::cli {

Result<void> check_reason_flag(const std::optional<std::string>& reason) {
  if (!reason) return {};
  return check_lowering_reason("cli", *reason);
}

nlohmann::json lowering_json(const Lowering& l) {
  return {{"chip", l.chip},
          {"granule", l.granule},
          {"tile", {l.tile.q, l.tile.kv}},
          {"reason", l.reason ? nlohmann::json(*l.reason) : nlohmann::json()},
          {"factor", paid_work(l.tile, l.granule).factor()}};
}

std::string lowering_text(const Lowering& l) {
  return fmt::format(
      "a tile of {}x{} in granules of {} on {} pays {:.4g} "
      "times its pairs{}",
      l.tile.q, l.tile.kv, l.granule, l.chip,
      paid_work(l.tile, l.granule).factor(),
      l.reason ? ": " + on_a_line(*l.reason) : "");
}

}  // namespace tessera::cli
