// bench/recompile/peer.h: FlexAttention on the batches of `tessera-bench
// recompile`.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/recompile/ragged_batches.h"
#include "tessera/attention.h"

namespace tessera::bench {

struct RecompilePeerRequest {
  std::string folder;  // of the script
  std::span<const RaggedBatch> batches;
  RaggedSizes sizes;
  AttentionShape shape;
  Dtype dtype = Dtype::f32;
  int threads = 1;
  double limit = 600;  // seconds
};

// One way to use FlexAttention, as the script measures it. Times are sums.
struct RecompilePeer {
  std::string mode;  // "padded", "dynamic", "static"
  std::string why;   // why it is not measured, or not to the end
  int64_t batches = 0, compiles = 0;
  int64_t lengths = 0;  // number of different lengths
  int64_t eager = 0;    // batches that ran as PyTorch's plain operations
  int64_t pairs = 0;    // legal pairs of one head
  double mask_ms = 0, compile_ms = 0, run_ms = 0, error = 0;
};

// Lines that are no measurements are skipped.
std::vector<RecompilePeer> parse_recompile_lines(std::string_view text);

// The result is never empty; `why` of the last one has a failure.
std::vector<RecompilePeer> run_recompile_peer(
    const RecompilePeerRequest& request);

nlohmann::json to_json(const RecompilePeer& peer);

}  // namespace tessera::bench
