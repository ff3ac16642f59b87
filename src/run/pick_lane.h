// run/pick_lane.h: the lane of one run on this machine: the one that was named,
// or the rules'.
#pragma once

#include <optional>
#include <span>

#include "tessera/dispatch.h"

namespace tessera::run {

// What a caller fixed of it.
struct LaneWish {
  const std::optional<LaneId>& lane;
  std::span<const LaneId> fallback;
  const GateTable& gate;
};

// Fills `machine` where it is empty. Its plugins are asked for only where they
// may count, since that takes a while; `as_given`: what it holds is all there
// is. Where the rules know no lane and others may step in, it is no_lane's.
Result<Choice> pick_lane(const LaneWish& wish, const RequestFeatures& features,
                         const PlanFacts& plan, bool as_given,
                         std::optional<Machine>& machine);

}  // namespace tessera::run
