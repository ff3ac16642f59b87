#include "cli/schedule_compile.h"

#include "base/fail.h"

namespace tessera::cli {

Result<std::vector<KernelText>> compile_for_dump(const DumpAsk&) {
  return unavailable("schedule", "stand-in");
}

Result<std::vector<KernelText>> compile_text_for_dump(const std::string&,
                                                      const DumpAsk&) {
  return unavailable("schedule", "stand-in");
}

}  // namespace tessera::cli
