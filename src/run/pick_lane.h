// run/pick_lane.h: the lane of one run: the named one, or the rules' choice.
#pragma once

#include <optional>
#include <span>

#include "tessera/dispatch.h"

namespace tessera::run {

// What the caller fixed of the choice.
struct LaneWish {
  const std::optional<LaneId>& lane;
  std::span<const LaneId> fallback;
  const GateTable& gate;
};

// Fills `machine` if it is empty. All plugins are loaded only if the gate has
// rows or no lane is found without them, since loading is slow; `as_given`
// says that the caller gave `machine`, so that it is not looked at again. If no
// lane can run the request and there are fallbacks, the choice is no_lane().
Result<Choice> pick_lane(const LaneWish& wish, const RequestFeatures& features,
                         const PlanFacts& plan, bool as_given,
                         std::optional<Machine>& machine);

}  // namespace tessera::run
