// schedule/attention.h: the roles of an attention kernel's regions, and how
// often each region runs for a plan.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "schedule/profile.h"
#include "tessera/plan.h"

namespace tessera::schedule {

// Counts of a plan for one head, with the tiles that a kernel's blocks make.
struct PlanCounts {
  int64_t steps = 0;  // active tiles; by class below
  int64_t partial = 0;
  int64_t full = 0;
  int64_t rows = 0;
  int64_t filled_rows = 0;  // rows with an active tile

  bool operator==(const PlanCounts&) const = default;
};
PlanCounts count_plan(const Plan& plan);

// The queries and keys of a block, if the kernel's first two windows are of q
// and k with these lengths. Tokens may be the last dimension or the one before.
std::optional<Tile> kernel_blocks(const KernelText& text, int64_t q_len,
                                  int64_t kv_len);

// The role of a region in an attention kernel; none if unknown.
enum class Role : uint8_t {
  none,
  grid,     // every step of the grid: overhead
  step,     // a guard around what a step does
  first,    // set-up of a row
  compute,  // an active tile
  full,     // an active tile without mask work
  partial,  // an active tile with mask work
  last,     // write-back of a row
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
  int64_t heads = 0;  // over all batch rows
  double grid_steps = 0;
  double dead_steps = 0;  // grid steps without an active tile
  double dead_cycles = 0;
  double active_steps = 0;
  double rows = 0;
};

// Nothing if the kernel's pipeline has no known form, or belongs to another
// plan.
std::optional<AttentionTrips> attention_trips(const KernelProfile& profile,
                                              const PlanCounts& counts);

// The region of the vendor's pipelined loop over a grid; 0: none.
size_t grid_region(const RegionTree& tree);
std::vector<size_t> branches_in(const RegionTree& tree, size_t parent);

}  // namespace tessera::schedule
