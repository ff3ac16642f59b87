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
  std::vector<HloCall> calls;  // calls of the program; empty: each kernel once
  HloBodies bodies;            // the computations that calls run
};

// Reads every kernel of the folder, without the program's own frame (TLP,
// <late-...>). A folder without a kernel is an error. `calls` is filled if the
// folder holds the HLO of exactly one program. With labels, only kernels with
// one of these names are read, whatever number the compiler appends.
Result<Dump> read_dump(const std::string& folder,
                       const std::vector<std::string>& labels = {});

// "forward.2" has the label "forward".
bool has_label(std::string_view kernel, std::string_view label);

}  // namespace tessera::schedule
