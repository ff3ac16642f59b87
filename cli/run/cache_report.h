// cli/run/cache_report.h: what commands say that compile for runs to come.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/command.h"
#include "tessera/machine.h"

namespace tessera::cli {

// There is one: what is warmed is kept for other processes.
Result<void> check_cache_folder(const std::string& folder);

struct CacheReport {
  CompileCounts counts;
  double ms = 0;
  std::string folder;
  std::vector<std::string> warnings;  // of the cache
};
inline constexpr const char* kCacheFields =
    "compiles, disk_hits, memory_hits, ms, cache, warnings";
// Prints these, as an object with what it has besides, or behind `first`, a
// line; warnings too, which make the exit code kFailed: what they are of may
// not be kept.
int print_cache_report(const CacheReport& report, bool as_json,
                       nlohmann::json more, const std::string& first);

}  // namespace tessera::cli
