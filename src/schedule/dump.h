// schedule/dump.h: finds the kernels in a folder of libtpu's dumps.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "schedule/bundles.h"
#include "schedule/hlo.h"

namespace tessera::schedule {

struct Dump {
  std::vector<KernelText> kernels;  // in the order they were compiled
  std::vector<HloCall> calls;       // of the program; empty: each kernel once
  HloBodies bodies;                 // what they call
};

// Every kernel of the folder. The program's own frame (TLP, <late-...>) is
// none. A folder without a kernel is an error. Calls are told where it holds
// the HLO of one program.
// With labels, those kernels alone that have one for a name, whatever number
// the compiler adds behind it.
Result<Dump> read_dump(const std::string& folder,
                       const std::vector<std::string>& labels = {});

// "forward.2" has the label "forward".
bool has_label(std::string_view kernel, std::string_view label);

}  // namespace tessera::schedule
