// schedule/collectives.h: what a program sends between devices, and the
// program's other work that the compiler has scheduled beside each transfer.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "schedule/hlo.h"

namespace tessera::schedule {

// A collective in the program's entry computation.
struct Collective {
  std::string name;
  std::string opcode;  // "all-gather"
  int64_t bytes = 0;   // operands on one device; ragged: capacity
  // The collective has a start op and a done op, with other ops in between.
  bool asynchronous = false;
  // The kernels and loops between start and done, and the fewest cycles they
  // take, with each loop counted as one pass.
  int64_t ops_between = 0;
  double cycles_between = 0;
  std::string longest;                    // the longest of these ops
  std::vector<std::string> kernels = {};  // the custom calls among them

  bool operator==(const Collective&) const = default;
};

// The collectives in the order of their starts. `cycles_of` gives the cycles of
// an op; nothing if the op runs no code, such as a tuple.
using CyclesOf = std::function<std::optional<double>(const HloCall&)>;
std::vector<Collective> find_collectives(const std::vector<HloCall>& calls,
                                         const HloBodies& bodies,
                                         const CyclesOf& cycles_of);

}  // namespace tessera::schedule
