// cli/trace_flag.h: `--trace FILE` around the work of a command.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "tessera/result.h"

namespace tessera::cli {

inline constexpr const char* kTraceHelp =
    "Write what ran when: open it in chrome://tracing or ui.perfetto.dev";

// Runs `work`, and where there is a path writes what ran when, also of work
// that fails: then its error is the one that is told. A path that cannot be
// written is refused before any work. `say`: name the file on stdout.
Result<int> traced(const std::optional<std::string>& path, bool say,
                   const std::function<Result<int>()>& work);

}  // namespace tessera::cli
