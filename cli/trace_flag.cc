// cli/trace_flag.cc: `--trace FILE` around the work of a command.
#include "cli/trace_flag.h"

#include <fmt/format.h>

#include "base/files.h"
#include "base/text.h"
#include "base/trace.h"

namespace tessera::cli {

Result<int> traced(const std::optional<std::string>& path, bool say,
                   const std::function<Result<int>()>& work) {
  if (!path) return work();
  if (auto e = check_output(*path); !e) return e.error();
  const Trace trace;
  Result<int> code = 0;
  try {
    code = work();
  } catch (...) {  // no memory, or stdout is closed
    (void)write_file(*path, trace.json());
    throw;
  }
  auto written = write_file(*path, trace.json());
  if (!code) return code;
  if (!written) return written.error();
  if (say) fmt::print("{:<11} {}\n", "trace", on_a_line(*path));
  return code;
}

}  // namespace tessera::cli
