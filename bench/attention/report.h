// bench/attention/report.h: how groups of rows are written.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "bench/attention/group.h"

namespace tessera::bench {

void print_group(const AttentionGroup& group);

nlohmann::json peaks_json(const Peaks& peaks, int threads);
nlohmann::json peer_runs_json(const std::vector<AttentionGroup>& groups);

// Whether the machine was otherwise idle, as far as we could see.
bool was_quiet(const std::vector<AttentionGroup>& groups);

}  // namespace tessera::bench
