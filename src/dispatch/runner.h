// dispatch/runner.h: the lanes that run, behind one form.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tessera/bridge.h"
#include "tessera/dispatch.h"

namespace tessera {

// What ran, counted by the lane, and how long each part took. Forward, where
// nothing else is said.
struct LaneRun {
  std::optional<std::string> isa;  // nothing: not for us to say
  std::optional<int> threads;
  int64_t tiles_run = 0, tiles_skipped = 0, pairs_run = 0;
  double prepare_ms = 0, forward_ms = 0, backward_ms = 0;
  // Of lanes that compile, both directions together; contracts by direction.
  std::map<std::string, std::string> kernels;
  int64_t compiles = 0, memory_hits = 0, disk_hits = 0;
  double compile_ms = 0, transfer_ms = 0;
  std::string artifact_digest;  // of a bridge's
  std::vector<std::string> warnings;
};

// What a lane may be asked, and what it holds once it is open.
struct LaneOptions {
  CpuOptions cpu;
  XlaOptions xla;  // plugin, device and cache are the bridge's too
  std::optional<BridgeArtifact> artifact;
  std::optional<XlaLane> opened;  // the xla lane
  std::optional<BridgeLane> bridge;
};

struct LaneCall {
  const Batch& batch;
  const AttentionShape& shape;
  const ForwardTensors& forward;
  const BackwardTensors* backward = nullptr;  // null: forward alone
  const LaneOptions& options;
};

struct Runner {
  LaneId lane;
  // Whether it can start here. Then options.opened is there if it is ever.
  Result<void> (*open)(LaneOptions& options);
  // `forward_ran` is set once the forward pass has given its outputs.
  Result<LaneRun> (*run)(const LaneCall& call, bool& forward_ran);
  // Takes and gives 0 for subnormal numbers, as a check must know.
  bool flushes = false;
};

std::span<const Runner> runners();
const Runner* find_runner(LaneId lane);  // null: it does not run

int64_t legal_pairs(const Plan& plan, int64_t heads);  // every query head

}  // namespace tessera
