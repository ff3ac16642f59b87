// lanes/mosaic/trips.cc: counts passes as the kernel walks them.
//
// The scores of the first pass are made before the loop, masked; the softmax of
// the last pass, and the last row's end, come after it.
#include "lanes/mosaic/trips.h"

#include <algorithm>

#include "base/fail.h"

namespace tessera {

Result<std::vector<TripRule>> mosaic_trips(const Plan& plan,
                                           const MosaicKernel& kernel,
                                           int64_t heads) {
  const int64_t tiles = kernel.options.tiles_per_pass;
  auto packed = pack_steps(plan, false, tiles);
  if (!packed) return packed.error();
  const std::vector<Step>& steps = packed->steps;
  if (static_cast<int64_t>(steps.size()) > kernel.steps) {
    return over_limit("mosaic", "steps must fit the kernel's {}, found {}",
                      kernel.steps, steps.size());
  }
  int64_t full = 0, rows = 0;
  bool first_is_full = false;
  for (size_t at = 0; at < steps.size(); at += static_cast<size_t>(tiles)) {
    const bool all_full =
        std::all_of(steps.begin() + static_cast<ptrdiff_t>(at),
                    steps.begin() + static_cast<ptrdiff_t>(at) + tiles,
                    [](const Step& s) { return s.step_class() == 2; });
    full += all_full;
    if (at == 0) first_is_full = all_full;
    rows += steps[at + static_cast<size_t>(tiles) - 1].last();
  }
  const int64_t passes = heads * static_cast<int64_t>(steps.size()) / tiles;
  const int64_t ahead = std::min(passes, kernel.options.fetch_ahead);
  const int64_t in_full = heads * full - first_is_full;
  auto rule = [](const char* region, int64_t trips) {
    return TripRule{region, static_cast<double>(trips)};
  };
  return std::vector<TripRule>{
      rule("batch_row", 1),
      rule("first_fetch", ahead),
      rule("pass", passes - 1),
      rule("fetch", passes - ahead),
      rule("full", in_full),
      rule("partial", passes - 1 - in_full),
      rule("finish", heads * rows - 1),
  };
}

}  // namespace tessera
