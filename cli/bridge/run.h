// cli/bridge/run.h: runs an exported operation as flags say.
#pragma once

#include <optional>
#include <string>

#include "cli/bridge/data.h"
#include "cli/run/plugin_flags.h"
#include "receipt/receipt.h"

namespace tessera::cli {

// The flags, not yet parsed.
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
// Runs the operation and, with --check, checks its results. Writes no file.
Result<BridgeOutcome> run_bridge(const BridgeFlags& flags);

}  // namespace tessera::cli
