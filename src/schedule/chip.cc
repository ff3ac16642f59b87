// schedule/chip.cc: clocks, memory and the form of dumps, by chip.
#include "schedule/chip.h"

#include <nlohmann/json.hpp>

#include "base/fail.h"
#include "base/text.h"
#include "plan/topology_name.h"

namespace tessera::schedule {
namespace {

// HBM and peak: docs.cloud.google.com/tpu/docs, the page of each version: v4
// 1,200 GB/s and 275 TFLOP/s (bf16), v5e 819 and 197, v5p 2,765 and 459, v6e
// 1,640 and 918, tpu7x 7,380 and 2,307 per chip. Schedules are per core; v4,
// v5p and tpu7x have two cores, each with half of that.
// Clock: a core's peak over the work of its matrix units per cycle, to 0.05
// GHz. The four 128 x 128 units of v4, v5e and v5p take one row per cycle, the
// two 256 x 256 units of v6e and tpu7x take two rows: schedules of a large
// product reach 92% to 99% of that.
// Delay: where regions start after a jump in the dumps of libtpu 0.0.51.
// Granule: the sizes of copies in these dumps, against those of their arrays.
// Calibration: docs/schedule.md, "How far from a TPU".
// Whole loops: the tables for v6e count a loop that is named for its fetches as
// often as the fetches (docs/schedule.md).
constexpr Chip kChips[] = {
    {"v4", 1.05, 571, 1, 512},
    {"v5e", 1.50, 546, 4, 32},
    {"v5p", 1.75, 790, 4, 32},
    {"v6e", 1.75, 937, 4, 32, Calibration{1.089, 1.0146, 1.2989}, false},
    {"tpu7x", 2.20, 1677, 1, 32, Calibration{1.2883, 1.1839, 2.1537}}};

}  // namespace

Result<Chip> find_chip(std::string_view target) {
  std::string known;
  for (const Chip& chip : kChips) {
    if (target.substr(0, target.find(':')) == chip.name) {
      if (auto e = plan::check_sides("schedule", target); !e) return e.error();
      return chip;
    }
    known += fmt::format("{}{}", known.empty() ? "" : ", ", chip.name);
  }
  return invalid("schedule", "a target must be of a known chip ({}), found {}",
                 known, in_quotes(target));
}

std::optional<std::string_view> calibrated_on(std::string_view target) {
  const auto chip = find_chip(target);
  if (!chip || !chip->calibration) return {};
  return kCalibratedOn;
}

std::string known_words(std::string_view target) {
  const auto programs = calibrated_on(target);
  return programs ? fmt::format("known of {}", *programs) : "not calibrated";
}

void add_known(nlohmann::json& out, std::string_view target) {
  const auto programs = calibrated_on(target);
  out["calibrated"] = false;
  out["calibrated_on"] =
      programs ? nlohmann::json(*programs) : nlohmann::json();
}

}  // namespace tessera::schedule
