// cli/pack/report.h: what was packed, in words and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "cli/pack/options.h"

namespace tessera::cli {

// What a run packed, and how long it took.
struct PackReport {
  PackAccount account;
  ChunkAccount chunks;
  PackBalance balance;
  std::set<std::string> ignored;
  int64_t files = 0;
  double seconds = 0;

  double documents_per_second() const {
    return seconds > 0 ? static_cast<double>(account.documents) / seconds : 0;
  }
};

nlohmann::json pack_json(const PackReport& report,
                         const StreamOptions& options);
std::string pack_text(const PackReport& report, const StreamOptions& options);

}  // namespace tessera::cli
