// cli/bridge/run.h: from flags to outputs and a receipt.
#pragma once

#include <optional>
#include <string>

#include "cli/bridge/data.h"
#include "cli/run/plugin_flags.h"
#include "receipt/receipt.h"

namespace tessera::cli {

// As typed.
struct BridgeFlags : PluginFlags {
  std::optional<std::string> artifact, shapes, inputs, seed, outputs, receipt,
      trace;
  bool check = false;
  bool json = false;
};

struct BridgeOutcome {
  receipt::Receipt receipt;
  BridgeSpec spec;
  BridgeData data;
};
// Runs the operation and checks it where that was asked for. Writes nothing.
Result<BridgeOutcome> run_bridge(const BridgeFlags& flags);

}  // namespace tessera::cli
