// schedule/predict.h: how often each region of a kernel runs, and the cycles
// that this takes.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/attention.h"
#include "schedule/chip.h"

namespace tessera::schedule {

// How often a region runs in the whole kernel; for a loop, its iterations.
// `region` is a name or a path of RegionTree, optionally after "KERNEL:": the
// kernel's name, with or without the number that XLA adds.
struct TripRule {
  std::string region;
  double trips = 0;
  // The trips if the region is a loop of which these ops are the larger part.
  std::optional<double> as_loop = {};
  // Selects among regions that share the name: only this kind; only regions
  // nested in a region named `inside`; only regions not nested in one named
  // `outside`.
  std::optional<RegionKind> kind = {};
  std::string inside = {}, outside = {};

  bool operator==(const TripRule&) const = default;
};

enum class TripSource : uint8_t {
  kernel,    // the kernel itself, which runs once
  constant,  // from the loop's exit test, or the grid in the dump
  plan,      // from the role of the region and the plan
  rule,      // given by the caller
  assumed,   // a branch taken whenever its parent runs
  unknown,
};
std::string_view trip_source_name(TripSource source);

struct RegionTime {
  double trips = 0;  // unknown loop: as if it ran once each time
  TripSource source = TripSource::unknown;
  Role role = Role::none;
  double bundle_cycles = 0;
  double memory_cycles = 0;  // for the HBM bytes that it moves
};

struct Prediction {
  std::vector<RegionTime> regions;
  // Within a loop, and outside of all loops, memory overlaps with bundles: this
  // is the sum over loops of the larger of the two. Nothing if a loop's trips
  // are unknown.
  std::optional<double> cycles;
  // The same, with loops of unknown trips counted as one pass each time.
  double cycles_loops_once = 0;
  std::vector<int64_t> unknown;  // loops whose trips a rule must give
  std::vector<int64_t> assumed;  // branches that count as always taken
  bool attention = false;        // roles and `heads` are known
  int64_t heads = 0;
  double grid_steps = 0;
  double dead_steps = 0;   // grid steps without an active tile
  double dead_cycles = 0;  // cycles of the dead steps
};

// `counts` are for the kernel's own blocks. A rule that matches no region of
// this kernel is ignored; check_rules checks all rules.
Result<Prediction> predict(const KernelProfile& profile, const Chip& chip,
                           std::span<const TripRule> rules,
                           const std::optional<PlanCounts>& counts);

// Each rule must match one region of one of these kernels.
Result<void> check_rules(std::span<const KernelProfile> profiles,
                         std::span<const TripRule> rules);

}  // namespace tessera::schedule
