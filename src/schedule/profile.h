// schedule/profile.h: what each region of a kernel costs once: bundles, slots,
// the slot that bounds it, spills, bytes of HBM.
#pragma once

#include "schedule/chip.h"
#include "schedule/regions.h"

namespace tessera::schedule {

// The cost of a set of bundles, each run once.
struct RegionCost {
  int64_t bundles = 0;
  int64_t stalls = 0;  // cycles without a bundle
  SlotCounts used{};
  // The fewest bundles that the busiest slot needs, and which slot that is.
  int64_t bound = 0;
  Slot bound_slot = kMatmul;
  int64_t transfers = 0;  // DMAs that touch HBM
  int64_t bytes = 0;      // moved by these DMAs, if the size is known
  int64_t unknown_sizes = 0;

  // Bundles divided by the bound; 0 without a bound.
  double distance() const;
  int64_t cycles() const { return bundles + stalls; }
  bool operator==(const RegionCost&) const = default;
};

struct KernelProfile {
  KernelText text;
  RegionTree tree;
  std::vector<RegionCost> own;    // per region, without inner regions
  std::vector<RegionCost> whole;  // with inner regions, each counted once
  int64_t granule = 0;            // bytes per granule of DMA sizes

  bool operator==(const KernelProfile&) const = default;
};

Result<KernelProfile> profile_kernel(KernelText text, const Chip& chip);

// Bytes that a transfer moves through the HBM port: a copy inside HBM counts
// twice.
int64_t transfer_bytes(const Transfer& t, int64_t granule);

// add_cost adds the sums; find_bound sets the bound of `cost.used` against
// `capacity`.
void add_cost(RegionCost& to, const RegionCost& cost);
void find_bound(const SlotCounts& capacity, RegionCost& cost);

}  // namespace tessera::schedule
