// cli/fit/flags.h: a call whose memory is asked for, as typed.
#pragma once

#include <optional>
#include <string>

#include "cli/compile/kernel_flags.h"
#include "cli/fit/report.h"

namespace tessera::cli {

struct FitFlags {
  KernelFlags kernel;
  std::optional<std::string> lane, method, plugin;
  bool compile = false;

  bool operator==(const FitFlags&) const = default;
};

// Those of a request, of a kernel and of a budget.
void add_fit_flags(Command& command, FitFlags& flags);

// A budget that is too small is no error yet.
Result<FitReport> fit_request(const FitFlags& flags);

}  // namespace tessera::cli
