// run/rules.h: the lanes of a request that no row of a gate applies to, by the
// length of the request and the share of tiles that its plan skips.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/dispatch.h"

namespace tessera::run {

// A lane, how it would run the request, and why it has this rank.
struct Candidate {
  LaneId lane = LaneId::cpu;
  XlaMethod method = XlaMethod::worklist;
  std::string reason;
  const DispatchRule* rule = nullptr;  // the row that put it there
};

// Whether the plugin has a device that is not a CPU.
bool is_device(const MachinePlugin& plugin);
const MachinePlugin* first_device(const Machine& machine);

// Whether the row's threshold is predicted, not measured.
bool is_predicted(const DispatchRule& rule);

// The XLA method for a request with this plan.
XlaMethod xla_method(const RequestFeatures& features, const PlanFacts& plan,
                     const Machine& machine);

// The candidates for a request that names no lane, best first.
std::vector<Candidate> by_rule(const RequestFeatures& features,
                               const PlanFacts& plan, const Machine& machine);

}  // namespace tessera::run
