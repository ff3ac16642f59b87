// schedule/profile.h: what each region of a kernel costs once: bundles, slots,
// the slot that bounds it, spills, bytes of HBM.
#pragma once

#include "schedule/chip.h"
#include "schedule/regions.h"

namespace tessera::schedule {

// Of bundles that belong to no region inside.
struct RegionCost {
  int64_t bundles = 0;
  int64_t stalls = 0;  // cycles without a bundle
  SlotCounts used{};
  // The fewest bundles that its busiest slot would need, and which slot it is.
  int64_t bound = 0;
  Slot bound_slot = kMatmul;
  int64_t transfers = 0;  // DMAs that touch HBM
  int64_t bytes = 0;      // that they move, where the size is known
  int64_t unknown_sizes = 0;

  // Bundles for each that the bound asks for; 0 without a bound.
  double distance() const;
  int64_t cycles() const { return bundles + stalls; }
  bool operator==(const RegionCost&) const = default;
};

struct KernelProfile {
  KernelText text;
  RegionTree tree;
  std::vector<RegionCost> own;    // of each region, without those inside
  std::vector<RegionCost> whole;  // with them, each counted once
  int64_t granule = 0;            // bytes of a granule of its DMAs

  bool operator==(const KernelProfile&) const = default;
};

Result<KernelProfile> profile_kernel(KernelText text, const Chip& chip);

// What it moves through HBM's port: a copy inside HBM twice its size.
int64_t transfer_bytes(const Transfer& t, int64_t granule);

// Sums, and the bound of `cost.used` against `capacity`.
void add_cost(RegionCost& to, const RegionCost& cost);
void find_bound(const SlotCounts& capacity, RegionCost& cost);

}  // namespace tessera::schedule
