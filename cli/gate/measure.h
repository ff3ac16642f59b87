// cli/gate/measure.h: each kernel of ours and plain XLA, in turns.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cli/gate/cases.h"
#include "tessera/dispatch.h"

namespace tessera::cli {

struct GateMeasured {
  GateTable table;
  std::string plugin;  // or why there is none
  double busy_cores = 0;
};

// The least of `rounds` counts. `plugin`: whose compiler plain XLA is; absent:
// the usual one, and rows are unmeasured where it is not here.
Result<GateMeasured> measure_gate(const GateSizes& sizes, int64_t rounds,
                                  const std::optional<std::string>& plugin,
                                  const Machine& machine);

}  // namespace tessera::cli
