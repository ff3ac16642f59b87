// schedule/collectives.h: what a program sends between devices, and what of its
// own work the compiler has put beside each.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "schedule/hlo.h"

namespace tessera::schedule {

// One of the program's entry.
struct Collective {
  std::string name;
  std::string opcode;  // "all-gather"
  int64_t bytes = 0;   // of its operands on one device; ragged: room for them
  // It starts, other ops run, and then its end is waited for.
  bool asynchronous = false;
  // Between the two: kernels and loops, and the cycles that they take at least,
  // as loops count one pass.
  int64_t ops_between = 0;
  double cycles_between = 0;
  std::string longest;                    // of these
  std::vector<std::string> kernels = {};  // of these, custom calls

  bool operator==(const Collective&) const = default;
};

// In the order in which they start. `cycles_of` an op that runs; nothing for
// one that is none, such as a tuple.
using CyclesOf = std::function<std::optional<double>(const HloCall&)>;
std::vector<Collective> find_collectives(const std::vector<HloCall>& calls,
                                         const HloBodies& bodies,
                                         const CyclesOf& cycles_of);

}  // namespace tessera::schedule
