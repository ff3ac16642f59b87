// bench/recompile/run.h: runs each batch on both lanes, checks and counts it.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "bench/recompile/ragged_batches.h"
#include "bench/recompile/settings.h"
#include "tessera/session.h"

namespace tessera::bench {

// Sums over all batches.
struct RecompileTotals : CompileCounts {
  int64_t batches = 0;
  int64_t compiles_in_loop = 0;  // after the warm-up
  std::set<std::string> contracts, shapes;
  double plan_ms = 0, compile_ms = 0, transfer_ms = 0, xla_ms = 0, cpu_ms = 0;
  int64_t legal_pairs = 0;  // of one head
  bool all_rows = true;
  int64_t rows = 0;  // that were checked
  double max_ratio = 0;
  std::string worst;
  std::set<std::string> warnings;

  bool passed() const { return max_ratio <= 1; }
  // Whether every program was compiled or read from disk once, and there is one
  // for each contract.
  bool one_each() const {
    return compiles + disk_hits == static_cast<int64_t>(contracts.size()) &&
           memory_hits + compiles + disk_hits >= 2 * batches;
  }
};

// The two lanes that run each batch.
struct RecompileLanes {
  Session xla, cpu;
};
Result<RecompileLanes> open_lanes(const RecompileSettings& settings);

// Compiles all programs that the batches will need.
Result<void> warm_up(const Session& xla, const RecompileSettings& settings,
                     const std::vector<RaggedBatch>& batches,
                     RecompileTotals& totals);

Result<void> run_batches(const RecompileLanes& lanes,
                         const RecompileSettings& settings,
                         const std::vector<RaggedBatch>& batches,
                         RecompileTotals& totals);

}  // namespace tessera::bench
