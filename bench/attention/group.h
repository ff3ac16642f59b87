// bench/attention/group.h: rows that share a length, a head dim, a dtype and a
// number of threads, measured beside their peers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/attention/peers.h"
#include "bench/attention/rows.h"
#include "bench/attention/settings.h"
#include "bench/harness/temp_folder.h"

namespace tessera::bench {

struct AttentionGroup {
  int64_t tokens = 0;
  int64_t head_dim = 0;
  Dtype dtype = Dtype::f32;
  int threads = 1;
  Peaks peaks;
  std::vector<BenchRow> rows;
  std::vector<PeerRun> peers;
};

void add_rows(AttentionGroup& group, const AttentionFlags& flags,
              const AttentionSettings& settings);

// Measures our rows, then each peer, then our rows again, so that a machine
// that changes its speed meanwhile favours neither side.
Result<void> measure_group(AttentionGroup& group, const AttentionFlags& flags,
                           const AttentionSettings& settings,
                           const TempFolder& folder);

// Replaces the line on a terminal; an empty text clears it.
void show_progress(const std::string& text);

}  // namespace tessera::bench
