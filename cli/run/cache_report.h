// cli/run/cache_report.h: the output of commands that fill the compile cache.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/command.h"
#include "tessera/machine.h"

namespace tessera::cli {

// Checks that there is a cache folder: without one, warming has no effect.
Result<void> check_cache_folder(const std::string& folder);

struct CacheReport {
  CompileCounts counts;
  double ms = 0;
  std::string folder;
  std::vector<std::string> warnings;  // of the cache
};
inline constexpr const char* kCacheFields =
    "compiles, disk_hits, memory_hits, ms, cache, warnings";
// Prints the report: as JSON with the fields of `more`, or as text after
// `first`. Warnings go to stderr and make the exit code kFailed, since a
// program may not have been stored.
int print_cache_report(const CacheReport& report, bool as_json,
                       nlohmann::json more, const std::string& first);

}  // namespace tessera::cli
