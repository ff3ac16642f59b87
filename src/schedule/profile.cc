#include "schedule/profile.h"

#include <utility>

#include "base/integers.h"

namespace tessera::schedule {

double RegionCost::distance() const {
  if (bound == 0) return 0;
  return static_cast<double>(bundles) / static_cast<double>(bound);
}

int64_t transfer_bytes(const Transfer& t, int64_t granule) {
  return t.granules.value_or(0) * granule *
         (int64_t{t.reads} + int64_t{t.writes});
}

void add_cost(RegionCost& to, const RegionCost& cost) {
  to.bundles += cost.bundles;
  to.stalls += cost.stalls;
  for (size_t s = 0; s < kSlots; ++s) to.used[s] += cost.used[s];
  to.transfers += cost.transfers;
  to.bytes += cost.bytes;
  to.unknown_sizes += cost.unknown_sizes;
}

void find_bound(const SlotCounts& capacity, RegionCost& cost) {
  cost.bound = 0;
  cost.bound_slot = kMatmul;
  for (size_t s = 0; s < kSlots; ++s) {
    const int64_t need = ceil_div(cost.used[s], capacity[s]);
    if (need <= cost.bound) continue;
    cost.bound = need;
    cost.bound_slot = static_cast<Slot>(s);
  }
}

Result<KernelProfile> profile_kernel(KernelText text, const Chip& chip) {
  auto tree = find_regions(text, chip.branch_delay);
  if (!tree) return tree.error();
  KernelProfile out{std::move(text), std::move(*tree), {}, {}, chip.granule};
  out.own.resize(out.tree.regions.size());
  for (size_t b = 0; b < out.text.bundles.size(); ++b) {
    const Bundle& bundle = out.text.bundles[b];
    RegionCost& cost = out.own[out.tree.innermost[b]];
    ++cost.bundles;
    cost.stalls += bundle.stalls;
    for (size_t s = 0; s < kSlots; ++s) cost.used[s] += bundle.used[s];
    for (const Transfer& t : bundle.transfers) {
      ++cost.transfers;
      cost.bytes += transfer_bytes(t, chip.granule);
      cost.unknown_sizes += t.granules ? 0 : 1;
    }
  }
  out.whole = out.own;
  for (size_t r = out.whole.size(); r-- > 1;) {
    const auto parent = static_cast<size_t>(out.tree.regions[r].parent);
    add_cost(out.whole[parent], out.whole[r]);
  }
  for (RegionCost& c : out.own) find_bound(out.text.capacity, c);
  for (RegionCost& c : out.whole) find_bound(out.text.capacity, c);
  return out;
}

}  // namespace tessera::schedule
