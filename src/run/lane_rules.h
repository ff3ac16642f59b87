// run/lane_rules.h: what a lane can do on a machine that has all it needs.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tessera/dispatch.h"

namespace tessera::run {

// Why the lane cannot run such a request on TPUs of that generation; nothing
// where it can. An empty generation: refused only if every known TPU would.
std::optional<std::string> cannot(const LaneFacts& lane,
                                  const RequestFeatures& features,
                                  std::string_view generation = {});

// The choice of a caller who named the lane, whether or not it can run here.
Choice by_name(LaneId lane, const RequestFeatures& features,
               const PlanFacts& plan, const Machine& machine);

// The choice where the rules know no lane and others may step in: the cpu lane,
// whose failure tells why they do, with the rows of the gate that keep lanes
// out.
Choice no_lane(const RequestFeatures& features, const PlanFacts& plan,
               const Machine& machine, const GateTable& gate);

// The rows of a gate's table, each by itself: a receipt has some of many, so
// their verdicts cannot be made again.
Result<GateTable> parse_gate_rows(std::string_view json);
// An error where no other rows of its kernel could give the row this verdict: a
// kernel is wrong, unjudged or out of the hot loop where one of its rows is.
Result<void> check_verdict_alone(const GateRow& row);

}  // namespace tessera::run
