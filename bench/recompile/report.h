// bench/recompile/report.h: prints the totals, and writes them as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "bench/recompile/kernels.h"
#include "bench/recompile/peer.h"
#include "bench/recompile/run.h"

namespace tessera::bench {

nlohmann::json result_json(const RecompileFlags& flags,
                           const RecompileSettings& settings,
                           const PluginPlace& place,
                           const RecompileTotals& totals,
                           const std::vector<RecompilePeer>& peers);
void print_result(const RecompileFlags& flags,
                  const RecompileSettings& settings, const PluginPlace& place,
                  const RecompileTotals& totals,
                  const std::vector<RecompilePeer>& peers);

// The same for lane mosaic.
nlohmann::json kernels_json(const RecompileSettings& settings,
                            const KernelTarget& target,
                            const KernelTotals& totals);
void print_kernels(const RecompileSettings& settings,
                   const KernelTarget& target, const KernelTotals& totals);

}  // namespace tessera::bench
