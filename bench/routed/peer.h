// bench/routed/peer.h: MoBA-style attention in PyTorch on the inputs of
// `tessera bench routed`.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "bench/routed/case.h"

namespace tessera::bench {

// One way to do it, as the script says.
struct RoutedPeer {
  std::string way;  // "tiles", "blocks"
  std::string why;  // it is not measured
  double ms = 0;    // of the median run, of which the next two are parts
  double route_ms = 0, attend_ms = 0;
  int64_t runs = 0;
  double same_picks = 0;  // share of the sampled picks that are ours
  double error = 0;       // where they are, of the largest value

  bool measured() const { return why.empty() && ms > 0; }
};

struct RoutedPeerRequest {
  std::string folder;  // with the script
  int threads = 1;
  Isa isa = Isa::portable;  // ours; theirs is held to it
  double seconds = 2;       // of runs a way
  double limit = 900;       // of the script
};

// What else a library prints is passed over.
std::vector<RoutedPeer> parse_routed_lines(std::string_view text,
                                           nlohmann::json& versions);

struct RoutedPeerRun {
  std::vector<RoutedPeer> ways;  // never empty; what goes wrong is in `why`
  nlohmann::json versions = nlohmann::json::object();
};

// `run` was attended to on `data`.
RoutedPeerRun run_routed_peer(const RoutedPeerRequest& request,
                              request::AttentionData& data,
                              const RoutedRun& run);

// The faster way, or null.
const RoutedPeer* best_of(const std::vector<RoutedPeer>& ways);

nlohmann::json to_json(const RoutedPeer& peer);

}  // namespace tessera::bench
