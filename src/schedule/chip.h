// schedule/chip.h: what predictions assume of each chip.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/result.h"

namespace tessera::schedule {

// Ratios of times that others measured on a chip to the predictions for the
// same programs: "all" of bench/results/<chip>/silicon.json.
struct Calibration {
  double median = 0;
  double p5 = 0;
  double p95 = 0;
};

// A bundle takes one cycle if nothing stalls.
struct Chip {
  std::string_view name;
  double gigahertz = 0;
  double hbm_bytes_per_cycle = 0;  // per core: half the chip's if it has two
  int64_t branch_delay = 0;        // bundles after a jump that always run
  int64_t granule = 0;             // bytes per granule, the unit of DMA sizes
  std::optional<Calibration> calibration = {};  // none: no measured times
  // Whether TripRule::as_loop applies to a loop that is named for its fetches.
  bool counts_whole_loops = true;
};

// The programs whose times were measured for calibrations.
inline constexpr std::string_view kCalibratedOn =
    "another kernel's forward passes without documents or softcap";

// The chip of a target, "v6e" or "v6e:2x2".
Result<Chip> find_chip(std::string_view target);
// What the calibration for a target is known of; nothing if there is none.
std::optional<std::string_view> calibrated_on(std::string_view target);
// The same in words: "known of ..." or "not calibrated".
std::string known_words(std::string_view target);
// The same as JSON, beside cycles of programs that were held against no times,
// as our own: `calibrated` is false, `calibrated_on` has the programs that
// were.
void add_known(nlohmann::json& out, std::string_view target);

}  // namespace tessera::schedule
