// dispatch/fallback.h: what happens when a chosen lane does not start. Apart
// from the choice, off unless the caller allows it, in the caller's order.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dispatch/runner.h"

namespace tessera {

// Refuses an order with a lane that does not run, that computes something else
// than the request means, or that stands there twice.
Result<void> check_fallback(std::span<const LaneId> order);

struct Failed {
  LaneId lane;
  std::string why;
};

struct Executed {
  LaneId lane = LaneId::cpu;
  LaneRun run;
  std::vector<Failed> failed;  // before it, in order
  // "xla did not start: ...", or nothing.
  std::optional<std::string> reason() const;
};

// Starts and runs one lane. `forward_ran`: as Runner::run has it.
using StartLane =
    std::function<Result<LaneRun>(const Runner& runner, bool& forward_ran)>;

// Runs `chosen`. Where it does not start, the next of `order` that can run such
// a request; a lane that failed after its forward pass ran is an error. With an
// empty order the error is the lane's own.
Result<Executed> execute(LaneId chosen, std::span<const LaneId> order,
                         const RequestFeatures& features,
                         const StartLane& start,
                         std::span<const Runner> there = runners());

}  // namespace tessera
