// schedule/program.h: the static profile of a program's kernels, and the cost
// of each for a request.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schedule/collectives.h"
#include "schedule/dump.h"
#include "schedule/predict.h"
#include "tessera/facts.h"
#include "tessera/plan.h"

namespace tessera::schedule {

struct KernelReport {
  int64_t calls = 1;  // in the program
  KernelProfile profile;
  Prediction prediction;
  std::optional<Tile> block;         // for an attention kernel
  std::optional<PlanCounts> counts;  // of the plan with these blocks
};

struct ScheduleReport {
  Chip chip;
  std::string target;
  std::vector<KernelReport> kernels;
  // Tiles of 256 x 256 that the exact plan computes for one head: the mean over
  // all plan heads and batch rows.
  std::optional<double> exact_tiles;
  // Heads of the attention kernels over all batch rows; 0: no such kernel.
  int64_t heads = 0;
  bool follows_plan = false;  // trips of a known kernel were given
  // Sum over all calls of kernels; nothing if a kernel's trips are unknown.
  std::optional<double> cycles;
  double cycles_loops_once = 0;  // unknown loops as one pass each
  // The part of asynchronous copies between HBM and other memory that no kernel
  // between start and end hides; included in the totals.
  double copy_cycles = 0;
  std::optional<double> attention_cycles;  // attention kernels only
  std::vector<Collective> collectives;     // if for several devices

  // Cycles per exact tile of one head, if all inputs are known.
  std::optional<double> cycles_per_tile() const;
};

// What the caller knows beyond the dump. A request gives the trips of attention
// kernels and the exact tiles; `heads` is for kernels whose grid does not tell
// them.
struct ScheduleOptions {
  std::string target;
  std::vector<TripRule> rules;
  // Rules for a known kernel, with lower precedence than `rules`. A rule is
  // ignored if the compiler made no branch of its region, or if `rules` name
  // the region.
  std::vector<TripRule> known;
  const Request* request = nullptr;
  Facts facts;  // of the request
  std::optional<int64_t> heads;
};

Result<ScheduleReport> make_schedule(Dump dump, const ScheduleOptions& options);

// The kernels that calls with this label run. Kernels with the same code are
// dumped once, under the name of one of their calls.
std::vector<KernelText> kernels_of_label(const Dump& dump,
                                         std::string_view label);

}  // namespace tessera::schedule
