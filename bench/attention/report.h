// bench/attention/report.h: prints groups of rows, and writes them as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "bench/attention/group.h"

namespace tessera::bench {

void print_group(const AttentionGroup& group);

nlohmann::json peaks_json(const Peaks& peaks, int threads);
nlohmann::json peer_runs_json(const std::vector<AttentionGroup>& groups);

// Whether the machine was otherwise idle during all measurements.
bool was_quiet(const std::vector<AttentionGroup>& groups);

}  // namespace tessera::bench
