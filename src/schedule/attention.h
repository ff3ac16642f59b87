// schedule/attention.h: which regions of an attention kernel do what, and how
// often each runs for a plan.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "schedule/profile.h"
#include "tessera/plan.h"

namespace tessera::schedule {

// What a plan says about one head, at the blocks of a kernel.
struct PlanCounts {
  int64_t steps = 0;  // active tiles, and those of each class
  int64_t partial = 0;
  int64_t full = 0;
  int64_t rows = 0;
  int64_t filled_rows = 0;  // those with a tile

  bool operator==(const PlanCounts&) const = default;
};
PlanCounts count_plan(const Plan& plan);

// The queries and keys of a block, where a kernel's first two windows are of q
// and k of these lengths. Tokens may be the last dimension or the one before.
std::optional<Tile> kernel_blocks(const KernelText& text, int64_t q_len,
                                  int64_t kv_len);

// What an attention kernel's regions are for, where it could be told.
enum class Role : uint8_t {
  none,
  grid,     // every step of the grid: overhead
  step,     // a guard around what a step does
  first,    // of a row: set-up
  compute,  // an active tile
  full,     // an active tile free of mask work
  partial,  // one with it
  last,     // of a row: write-back
};
std::string_view role_name(Role role);

struct RoleTrips {
  size_t region = 0;
  double trips = 0;
  Role role = Role::none;

  bool operator==(const RoleTrips&) const = default;
};

struct AttentionTrips {
  std::vector<RoleTrips> regions;
  int64_t heads = 0;  // of all batch rows
  double grid_steps = 0;
  double dead_steps = 0;  // of them, those of no active tile
  double dead_cycles = 0;
  double active_steps = 0;
  double rows = 0;
};

// Nothing where the kernel's pipeline is none that we know, or of another plan.
std::optional<AttentionTrips> attention_trips(const KernelProfile& profile,
                                              const PlanCounts& counts);

// The region of the vendor's pipelined loop over a grid; 0 where there is none.
size_t grid_region(const RegionTree& tree);
std::vector<size_t> branches_in(const RegionTree& tree, size_t parent);

}  // namespace tessera::schedule
