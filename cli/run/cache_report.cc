// cli/run/cache_report.cc: prints what was compiled and where it is stored.
#include "cli/run/cache_report.h"

#include <fmt/format.h>

#include "base/fail.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/json_line.h"
#include "cli/warnings.h"

namespace tessera::cli {

Result<void> check_cache_folder(const std::string& folder) {
  if (!folder.empty()) return {};
  return invalid("cli",
                 "warmed programs must be kept in a folder for other "
                 "processes, found none (--cache FOLDER)");
}

int print_cache_report(const CacheReport& w, bool as_json, nlohmann::json more,
                       const std::string& first) {
  print_warnings(w.warnings);
  const int code = w.warnings.empty() ? kOk : kFailed;
  if (as_json) {
    more.update({{"compiles", w.counts.compiles},
                 {"disk_hits", w.counts.disk_hits},
                 {"memory_hits", w.counts.memory_hits},
                 {"ms", w.ms},
                 {"cache", w.folder},
                 {"warnings", w.warnings}});
    fmt::print("{}\n", json_line(more));
    return code;
  }
  fmt::print(
      "{}{:<11} {} programs in {:.0f} ms, {} found on disk\n"
      "{:<11} {}{}\n",
      first, "compiled", w.counts.compiles, w.ms, w.counts.disk_hits, "kept in",
      on_a_line(w.folder), w.warnings.empty() ? "" : ", but what is warned of");
  return code;
}

}  // namespace tessera::cli
