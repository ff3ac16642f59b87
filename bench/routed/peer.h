// bench/routed/peer.h: MoBA-style attention in PyTorch on the inputs of
// `tessera-bench routed`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "bench/routed/case.h"

namespace tessera::bench {

// One way of the peer, as measured by the script.
struct RoutedPeer {
  std::string way;  // "tiles", "blocks"
  std::string why;  // why it is not measured
  double ms = 0;    // of the median run; the next two are parts of it
  double route_ms = 0, attend_ms = 0;
  int64_t runs = 0;
  double same_picks = 0;  // share of sampled picks that equal ours
  double error = 0;  // where picks are equal; in shares of the largest value

  bool measured() const { return why.empty() && ms > 0; }
};

struct RoutedPeerRequest {
  std::string folder;  // of the script
  int threads = 1;
  Isa isa = Isa::portable;  // of our lane; the peer is limited to it
  double seconds = 2;       // of runs of each way
  double limit = 900;       // seconds for the script
};

// Lines that are no measurements are skipped.
std::vector<RoutedPeer> parse_routed_lines(std::string_view text,
                                           nlohmann::json& versions);

struct RoutedPeerRun {
  std::vector<RoutedPeer> ways;  // never empty; `why` has a failure
  nlohmann::json versions = nlohmann::json::object();
};

// `data` has the output of `run`.
RoutedPeerRun run_routed_peer(const RoutedPeerRequest& request,
                              request::AttentionData& data,
                              const RoutedRun& run);

// The faster way; null if none was measured.
const RoutedPeer* best_of(const std::vector<RoutedPeer>& ways);

nlohmann::json to_json(const RoutedPeer& peer);

}  // namespace tessera::bench
