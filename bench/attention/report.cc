// bench/attention/report.cc: prints groups of rows, and writes them as JSON.
#include "bench/attention/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "base/dtype_word.h"

namespace tessera::bench {

using nlohmann::json;

void print_group(const AttentionGroup& group) {
  fmt::print("{} tokens, head dim {}, {}, {} thread{}\n", group.tokens,
             group.head_dim, dtype_word(group.dtype), group.threads,
             group.threads == 1 ? "" : "s");
  fmt::print("{}", table_header());
  for (const BenchRow& row : group.rows) fmt::print("{}", table_line(row));
  for (const PeerRun& p : group.peers) {
    if (!p.why.empty()) fmt::print("{}: not measured: {}\n", p.script, p.why);
  }
  fmt::print("\n");
  std::fflush(stdout);
}

json peaks_json(const Peaks& peaks, int threads) {
  return {{"threads", threads},
          {"fma_gflops", peaks.fma_gflops},
          {"bf16_dot_gflops", peaks.bf16_dot_gflops},
          {"read_gbytes", peaks.read_gbytes}};
}

json peer_runs_json(const std::vector<AttentionGroup>& groups) {
  json out = json::array();
  for (const AttentionGroup& g : groups) {
    for (const PeerRun& p : g.peers) {
      out.push_back({{"script", p.script},
                     {"tokens", g.tokens},
                     {"head_dim", g.head_dim},
                     {"dtype", dtype_word(g.dtype)},
                     {"threads", g.threads},
                     {"why", p.why},
                     {"versions", p.versions},
                     {"seconds", p.seconds},
                     {"other_cores", p.other_cores}});
    }
  }
  return out;
}

bool was_quiet(const std::vector<AttentionGroup>& groups) {
  double most = 0;
  for (const AttentionGroup& g : groups) {
    for (const PeerRun& p : g.peers) most = std::max(most, p.other_cores);
    for (const BenchRow& row : g.rows) {
      if (row.ours) most = std::max(most, row.ours->other_cores);
    }
  }
  return most < kQuietCores;
}

}  // namespace tessera::bench
