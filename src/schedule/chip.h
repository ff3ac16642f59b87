// schedule/chip.h: what is assumed of each chip.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/result.h"

namespace tessera::schedule {

// Times that others measured on a chip, over what is predicted for the same
// programs: "all" of bench/results/<chip>/silicon.json.
struct Calibration {
  double median = 0;
  double p5 = 0;
  double p95 = 0;
};

// A bundle is a cycle when nothing stalls.
struct Chip {
  std::string_view name;
  double gigahertz = 0;
  double hbm_bytes_per_cycle = 0;  // of a core, of two its half
  int64_t branch_delay = 0;        // bundles behind a jump that run either way
  int64_t granule = 0;             // bytes of a granule of a DMA's size
  std::optional<Calibration> calibration = {};  // none: no times are known
  // A loop that is named for its fetches has trips of its own.
  bool counts_whole_loops = true;
};

// The programs whose times these were.
inline constexpr std::string_view kCalibratedOn =
    "another kernel's forward passes without documents or softcap";

// Of "v6e" or "v6e:2x2".
Result<Chip> find_chip(std::string_view target);
// How far predictions for a chip are: "not calibrated", or by how many times.
std::string calibration_words(const std::optional<Calibration>& calibration);
// How far predictions for it are known.
std::string known_words(std::string_view target);

}  // namespace tessera::schedule
