// run/rules.h: which lanes a request goes to where nothing was measured for it:
// by how much its plan skips and how long it is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/dispatch.h"

namespace tessera::run {

// A lane with how it would run the request, and why it stands where it does.
struct Candidate {
  LaneId lane = LaneId::cpu;
  XlaMethod method = XlaMethod::worklist;
  std::string reason;
  const DispatchRule* rule = nullptr;  // that put it there
};

// Beside the CPU.
bool is_device(const MachinePlugin& plugin);
const MachinePlugin* first_device(const Machine& machine);

// A row's threshold, where it was not measured.
bool is_predicted(const DispatchRule& rule);

// XLA's program of a request, by its plan.
XlaMethod xla_method(const RequestFeatures& features, const PlanFacts& plan,
                     const Machine& machine);

// The lanes that nobody asked for, first to last.
std::vector<Candidate> by_rule(const RequestFeatures& features,
                               const PlanFacts& plan, const Machine& machine);

}  // namespace tessera::run
