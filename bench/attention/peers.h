// bench/attention/peers.h: the public peers of `tessera-bench attention`. Each
// is a script for an interpreter that an environment variable names.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/attention/rows.h"
#include "tessera/result.h"

namespace tessera::bench {

struct PeerScript {
  std::string_view name;
  std::string_view file;      // in the folder of --peers
  std::string_view variable;  // of the environment: names the interpreter
};
std::span<const PeerScript> peer_scripts();

// Settings that all rows of one run of the scripts share.
struct PeerRequest {
  std::string folder;  // of --peers
  std::string docs;    // path of a .npy file of document ids
  std::vector<std::string_view> cases;
  Dtype dtype = Dtype::f32;
  int64_t tokens = 0;
  int64_t head_dim = 0;
  int threads = 1;
  bool backward = false;
  Isa isa = Isa::portable;  // of our lane; peers are limited to it
  double seconds = 2;       // of runs in a measurement
  double limit = 300;       // seconds for a script
};

// One measurement, as a script prints it.
struct PeerLine {
  std::string name;
  std::string dtype;
  std::string direction;
  int64_t pairs = 0;
  PeerTimes times;
};

struct PeerRun {
  std::string script;
  std::string why;  // why it did not run, or not to its end
  nlohmann::json versions = nlohmann::json::object();
  std::vector<PeerLine> lines;
  double seconds = 0;
  double other_cores = 0;
};

// The lines that are measurements; other output is skipped. `versions` is read
// from the line that announces the script.
std::vector<PeerLine> parse_peer_lines(std::string_view text,
                                       nlohmann::json& versions);

// Never returns an error: `why` has the failure of a peer.
PeerRun run_peer(const PeerScript& script, const PeerRequest& request);

// Adds the measurements to their rows. One whose count of legal pairs differs
// from ours is rejected, since that peer did other work.
void join_peers(const PeerRun& run, std::span<BenchRow> rows);

}  // namespace tessera::bench
