// cli/run_lane.h: the lanes `tessera run` can execute.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/attention_data.h"
#include "tessera/cpu.h"
#include "tessera/xla.h"

namespace tessera::cli {

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
  std::vector<std::string> warnings;
};

// What a lane may be asked, and what it holds once it is open.
struct LaneOptions {
  CpuOptions cpu;
  XlaOptions xla;
  std::optional<XlaLane> opened;  // the xla lane
};

struct LaneCall {
  const Request& request;
  const Facts& facts;
  const Plan& plan;
  AttentionData& data;
  const LaneOptions& options;
};

struct Lane {
  std::string_view name;
  // Whether it can run here; asked when `shapes` has no array yet. Then
  // options.opened is there if it is ever.
  Result<void> (*open)(const AttentionData& shapes, LaneOptions& options);
  // What it needs beside the arrays, about.
  double (*more_bytes)(const AttentionData& shapes, const LaneOptions& options);
  Result<LaneRun> (*run)(const LaneCall& call);
  // Takes and gives 0 for subnormal numbers, as a check must know.
  bool flushes = false;
};

std::span<const Lane> lanes();

// Whose code runs: "native", "reference", or of a plugin's platform.
std::string lane_family(const Lane& lane, const LaneOptions& options);

int64_t legal_pairs(const Plan& plan, int64_t heads);  // every query head

}  // namespace tessera::cli
