// cli/fit/flags.h: a call whose memory is asked for, as typed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/compile/kernel_flags.h"
#include "cli/fit/report.h"
#include "cli/given_flags.h"

namespace tessera::cli {

struct FitFlags {
  KernelFlags kernel;
  std::optional<std::string> lane, method, plugin;
  bool compile = false;
};

// Flags of the kernel's settings, which lane xla and meshes do not take.
std::vector<GivenFlag> kernel_settings(const KernelFlags& flags);

// Those of a request, of a kernel and of a budget.
void add_fit_flags(Command& command, FitFlags& flags);

// A budget that is too small is no error yet.
Result<FitReport> fit_request(const FitFlags& flags);

}  // namespace tessera::cli
