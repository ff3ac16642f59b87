// schedule/program.h: the static profile of a program's kernels, and what each
// costs for a request.
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
  std::optional<Tile> block;         // of an attention kernel
  std::optional<PlanCounts> counts;  // of the plan at its blocks
};

struct ScheduleReport {
  Chip chip;
  std::string target;
  std::vector<KernelReport> kernels;
  // Tiles of 256 x 256 that the exact plan computes, for one head: the mean of
  // all plan heads and batch rows.
  std::optional<double> exact_tiles;
  // Of the attention kernels, of all batch rows; 0 where there is none.
  int64_t heads = 0;
  bool follows_plan = false;  // a kernel that we know
  // Of all calls of kernels; nothing where one's trips are unknown.
  std::optional<double> cycles;
  double cycles_loops_once = 0;  // such loops counted as one pass each time
  // Of asynchronous copies between HBM and other memory, what no kernel between
  // their start and their end hides; the totals have it.
  double copy_cycles = 0;
  std::optional<double> attention_cycles;  // of the attention kernels alone
  std::vector<Collective> collectives;     // of a program for several devices

  // Of an exact tile of one head, where all of that is known.
  std::optional<double> cycles_per_tile() const;
};

// What the caller knows beside the dump. A request gives the trips of attention
// kernels and the exact tiles; `heads` those that no kernel's grid tells.
struct ScheduleOptions {
  std::string target;
  std::vector<TripRule> rules;
  // The same for a kernel that we know, which rules above come before; a region
  // that the compiler made no branch of, or that a rule above names, is passed
  // over.
  std::vector<TripRule> known;
  const Request* request = nullptr;
  Facts facts;  // of the request
  std::optional<int64_t> heads;
};

Result<ScheduleReport> make_schedule(Dump dump, const ScheduleOptions& options);

// The kernels that calls of this label run. Kernels of the same code are dumped
// once, under the name of one of their calls.
std::vector<KernelText> kernels_of_label(const Dump& dump,
                                         std::string_view label);

}  // namespace tessera::schedule
