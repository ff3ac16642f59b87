// dispatch/fallback.cc: the lanes that may step in, one after the other.
#include "dispatch/fallback.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "dispatch/can.h"

namespace tessera {
namespace {

// The lane's answer, or why it could not be asked.
Result<LaneRun> attempt(LaneId lane, const RequestFeatures& features,
                        const StartLane& start, std::span<const Runner> there,
                        bool& forward_ran) {
  if (const auto why = cannot(facts_of(lane), features)) {
    return unavailable("dispatch",
                       "the {} lane must be able to run this, "
                       "found: {}",
                       to_string(lane), *why);
  }
  const auto runner = std::ranges::find(there, lane, &Runner::lane);
  if (runner == there.end()) {
    return unavailable("dispatch", "a lane must run here, found {}",
                       to_string(lane));
  }
  return start(*runner, forward_ran);
}

}  // namespace

Result<void> check_fallback(std::span<const LaneId> order) {
  for (size_t i = 0; i < order.size(); ++i) {
    const LaneFacts& lane = facts_of(order[i]);
    if (!lane.same_meaning) {
      return invalid("dispatch",
                     "a fallback must mean the same as the request, found {}, "
                     "which computes what its artifact holds",
                     to_string(order[i]));
    }
    if (!lane.absent.empty() || !lane.runs) {
      return invalid(
          "dispatch",
          "a fallback must be a lane that runs, found "
          "{}: {}",
          to_string(order[i]),
          lane.absent.empty() ? "this version only compiles it" : lane.absent);
    }
    if (std::ranges::count(order, order[i]) > 1) {
      return invalid("dispatch", "a fallback is named once, found {} twice",
                     to_string(order[i]));
    }
  }
  return {};
}

std::optional<std::string> Executed::reason() const {
  if (failed.empty()) return {};
  std::string out;
  for (const Failed& f : failed) {
    out += fmt::format("{}{} did not start: {}", out.empty() ? "" : "; ",
                       to_string(f.lane), f.why);
  }
  return out;
}

Result<Executed> execute(LaneId chosen, std::span<const LaneId> order,
                         const RequestFeatures& features,
                         const StartLane& start,
                         std::span<const Runner> there) {
  if (auto e = check_fallback(order); !e) return e.error();
  std::vector<LaneId> lanes = {chosen};
  for (const LaneId lane : order) {
    if (lane != chosen) lanes.push_back(lane);
  }
  Executed out;
  for (const LaneId lane : lanes) {
    bool forward_ran = false;
    auto ran = attempt(lane, features, start, there, forward_ran);
    if (ran) {
      out.lane = lane;
      out.run = std::move(*ran);
      return out;
    }
    // Half a run is no start that failed; and strict is the lane's own error.
    if (forward_ran || lanes.size() == 1) return ran.error();
    out.failed.push_back({lane, ran.error().message});
  }
  return unavailable("dispatch", "one of the lanes must start, found: {}",
                     *out.reason());
}

}  // namespace tessera
