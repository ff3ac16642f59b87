// schedule/predict.h: how often each region of a kernel runs, and the cycles
// that makes.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/attention.h"
#include "schedule/chip.h"

namespace tessera::schedule {

// How often a region runs in the whole kernel; of a loop, its iterations.
// `region` is a name or a path of RegionTree, and "KERNEL:" may stand before
// it: the kernel's name, with or without the number that XLA adds.
struct TripRule {
  std::string region;
  double trips = 0;
  // Where the region of that name is a loop, which these ops are most of.
  std::optional<double> as_loop = {};
  // Of regions that share the name: of this kind alone, those somewhere inside
  // a region of that name alone, those that are not.
  std::optional<RegionKind> kind = {};
  std::string inside = {}, outside = {};

  bool operator==(const TripRule&) const = default;
};

enum class TripSource : uint8_t {
  kernel,    // it runs once
  constant,  // in the loop's exit test, or the grid in the dump
  plan,      // a kind of region known from the plan
  rule,      // the caller said so
  assumed,   // taken whenever what holds it runs
  unknown,
};
std::string_view trip_source_name(TripSource source);

struct RegionTime {
  double trips = 0;  // of an unknown loop: what once each time would make
  TripSource source = TripSource::unknown;
  Role role = Role::none;
  double bundle_cycles = 0;
  double memory_cycles = 0;  // of the HBM bytes that it asks for
};

struct Prediction {
  std::vector<RegionTime> regions;
  // Inside one loop, and outside of all, memory overlaps with bundles: the sum
  // over loops of the larger of both. Nothing where a loop's trips are unknown.
  std::optional<double> cycles;
  // The same, loops of unknown trips counted as one pass each time.
  double cycles_loops_once = 0;
  std::vector<int64_t> unknown;  // loops whose trips somebody must give
  std::vector<int64_t> assumed;  // branches that count as always taken
  bool attention = false;        // roles were told, and `heads` with them
  int64_t heads = 0;
  double grid_steps = 0;
  double dead_steps = 0;   // of them, those of no active tile
  double dead_cycles = 0;  // the bundles that they run
};

// `counts` are of the kernel's own blocks. A rule for no region of this kernel
// is passed over; check_rules looks at all of them.
Result<Prediction> predict(const KernelProfile& profile, const Chip& chip,
                           std::span<const TripRule> rules,
                           const std::optional<PlanCounts>& counts);

// Each rule must mean one region of one of these kernels.
Result<void> check_rules(std::span<const KernelProfile> profiles,
                         std::span<const TripRule> rules);

}  // namespace tessera::schedule
