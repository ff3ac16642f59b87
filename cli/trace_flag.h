// cli/trace_flag.h: `--trace FILE` around the work of a command.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "tessera/result.h"

namespace tessera::cli {

inline constexpr const char* kTraceHelp =
    "Write what ran when: open it in chrome://tracing or ui.perfetto.dev";

// Runs `work`. If there is a path, writes the trace to it, also if `work`
// fails; the error of `work` is then the one returned. A path that cannot be
// written is refused before any work. `say`: print the name of the file to
// stdout.
Result<int> traced(const std::optional<std::string>& path, bool say,
                   const std::function<Result<int>()>& work);

}  // namespace tessera::cli
