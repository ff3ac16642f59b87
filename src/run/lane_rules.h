// run/lane_rules.h: what a lane can do on a machine that has all it needs.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tessera/dispatch.h"

namespace tessera::run {

// Why the lane cannot run such a request on TPUs of that generation; nothing
// if it can. With no generation it is refused only if no known TPU could run
// it.
std::optional<std::string> cannot(const LaneFacts& lane,
                                  const RequestFeatures& features,
                                  std::string_view generation = {});

// The choice of a caller who named the lane, whether or not it can run here.
Choice by_name(LaneId lane, const RequestFeatures& features,
               const PlanFacts& plan, const Machine& machine);

// The choice when no lane of the rules can run the request but fallback lanes
// may: the cpu lane, whose failure to start says why a fallback runs. It lists
// the rows of the gate that keep lanes out.
Choice no_lane(const RequestFeatures& features, const PlanFacts& plan,
               const Machine& machine, const GateTable& gate);

// Parses the rows of a gate's table and checks each row alone. A receipt has
// only some rows of the table, so the verdicts cannot be computed again.
Result<GateTable> parse_gate_rows(std::string_view json);
// An error if no set of other rows could give the row's kernel this verdict: a
// kernel is wrong, unjudged or out of the hot loop if one of its rows is.
Result<void> check_verdict_alone(const GateRow& row);

}  // namespace tessera::run
