// cli/bridge/report.h: what the bridge ran, as a receipt and in words.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "receipt/receipt.h"
#include "tessera/bridge.h"

namespace tessera::cli {

struct BridgeReport {
  BridgeSpec spec;
  std::optional<Receipt::Plugin> plugin;
  BridgeRun run;
  std::string artifact_file, shapes_file;
  std::string inputs_file;  // "": drawn from the seed
  uint64_t seed = 0;
  std::map<std::string, std::string> input_digests;
  std::string output_digest;
  Receipt::Check check;
};

// One JSON object that ends with a digest of all before it; docs/bridge.md
// explains its fields.
std::string bridge_json(const BridgeReport& report, int indent = -1);
std::string bridge_text(const BridgeReport& report);

}  // namespace tessera::cli
