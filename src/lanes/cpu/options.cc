// lanes/cpu/options.cc: checks of the lane's options.
#include "base/fail.h"
#include "base/threads.h"
#include "lanes/cpu/work.h"

namespace tessera::cpu {

Result<void> check_options(const CpuOptions& options) {
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return invalid("cpu", "threads must be 0 to {}, found {} for threads",
                   kMaxThreads, options.threads);
  }
  return {};
}

int threads_of(const CpuOptions& options) {
  return options.threads > 0 ? options.threads : machine_threads();
}

}  // namespace tessera::cpu
