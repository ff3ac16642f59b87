// bench/recompile/kernels.h: the TPU kernels of the batches, written for each
// and compiled ahead of time, with no device.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench/recompile/ragged_batches.h"
#include "bench/recompile/settings.h"
#include "pjrt/topology.h"

namespace tessera::bench {

// Where they are compiled.
struct KernelTarget {
  std::optional<pjrt::Topology> topology;  // none: they are not
  std::string why_not;
};
// A compiler that is not here is an error where it `must_compile`.
Result<KernelTarget> open_target(const RecompileSettings& settings,
                                 bool must_compile);

struct KernelTotals {
  int64_t batches = 0;
  std::set<std::string> shapes;     // plan contracts
  std::set<std::string> contracts;  // of kernels, both directions
  // With the digest of its text: a batch whose kernel is not that of its
  // contract adds one.
  std::set<std::pair<std::string, std::string>> programs;
  int64_t compiles = 0;  // of programs, each once
  int64_t steps = 0;     // of all worklists, both directions
  int64_t legal_pairs = 0;
  double plan_ms = 0, write_ms = 0, arrays_ms = 0, compile_ms = 0;

  bool one_each() const { return programs.size() == contracts.size(); }
};

// Each batch must have room in the kernels of its contract.
Result<KernelTotals> compile_kernels(const RecompileSettings& settings,
                                     const KernelTarget& target,
                                     const std::vector<RaggedBatch>& batches);

}  // namespace tessera::bench
