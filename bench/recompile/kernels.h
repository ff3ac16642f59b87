// bench/recompile/kernels.h: writes the TPU kernels of each batch and compiles
// them ahead of time, without a device.
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

// The target that kernels are compiled for.
struct KernelTarget {
  std::optional<pjrt::Topology> topology;  // none: nothing is compiled
  std::string why_not;
};
// A missing compiler is an error only with `must_compile`.
Result<KernelTarget> open_target(const RecompileSettings& settings,
                                 bool must_compile);

struct KernelTotals {
  int64_t batches = 0;
  std::set<std::string> shapes;     // plan contracts
  std::set<std::string> contracts;  // of kernels, both directions
  // (contract, digest of the kernel's text). If a contract has kernels of
  // different texts, there are more programs than contracts.
  std::set<std::pair<std::string, std::string>> programs;
  int64_t compiles = 0;  // of programs, each once
  int64_t steps = 0;     // of all worklists, both directions
  int64_t legal_pairs = 0;
  double plan_ms = 0, write_ms = 0, arrays_ms = 0, compile_ms = 0;

  bool one_each() const { return programs.size() == contracts.size(); }
};

// Fails if a batch does not fit the kernels of its contract.
Result<KernelTotals> compile_kernels(const RecompileSettings& settings,
                                     const KernelTarget& target,
                                     const std::vector<RaggedBatch>& batches);

}  // namespace tessera::bench
