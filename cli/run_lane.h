// cli/run_lane.h: the lanes `tessera run` can execute.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "cli/attention_data.h"
#include "tessera/cpu.h"

namespace tessera::cli {

// What ran, counted by the lane, and how long each part took.
struct LaneRun {
  std::string isa;
  int threads = 1;
  int64_t tiles_run = 0, tiles_skipped = 0, pairs_run = 0;  // forward
  double prepare_ms = 0, forward_ms = 0, backward_ms = 0;
};

struct LaneCall {
  const Request& request;
  const Facts& facts;
  const Plan& plan;
  AttentionData& data;
  CpuOptions options;
};

struct Lane {
  std::string_view name;
  std::string_view family;
  bool takes_cpu_options;  // threads and ISA
  // More memory, a byte of f32 data.
  double copy_bytes, backward_copy_bytes;
  Result<LaneRun> (*run)(const LaneCall& call);
};

std::span<const Lane> lanes();

int64_t legal_pairs(const Plan& plan, int64_t heads);  // every query head

}  // namespace tessera::cli
