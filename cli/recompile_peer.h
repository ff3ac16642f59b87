// cli/recompile_peer.h: FlexAttention on the batches of `tessera bench
// recompile`.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "cli/ragged_batches.h"
#include "tessera/attention.h"

namespace tessera::cli {

struct RecompilePeerRequest {
  std::string folder;  // with the script
  std::span<const RaggedBatch> batches;
  RaggedSizes sizes;
  AttentionShape shape;
  Dtype dtype = Dtype::f32;
  int threads = 1;
  double limit = 600;  // seconds
};

// The script's lines, an object each; what goes wrong is in "why" of one.
nlohmann::json run_recompile_peer(const RecompilePeerRequest& request);

}  // namespace tessera::cli
