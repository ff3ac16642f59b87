// schedule/chip.h: what is assumed of each chip.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tessera/result.h"

namespace tessera::schedule {

// A bundle is a cycle when nothing stalls.
struct Chip {
  std::string_view name;
  double gigahertz = 0;
  double hbm_bytes_per_cycle = 0;  // of a core, of two its half
  int64_t branch_delay = 0;        // bundles behind a jump that run either way
  int64_t granule = 0;             // bytes of a granule of a DMA's size
  bool calibrated = false;         // predictions were held against times on it
};

// The programs whose times these were.
inline constexpr std::string_view kCalibratedOn =
    "another kernel's forward passes without documents or softcap";

// Of "v6e" or "v6e:2x2".
Result<Chip> find_chip(std::string_view target);
// How far predictions for it are known.
std::string known_words(std::string_view target);

}  // namespace tessera::schedule
