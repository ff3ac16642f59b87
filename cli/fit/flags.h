// cli/fit/flags.h: the flags of `tessera fit`, and the budget of a request.
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

// The flags of kernel settings, which lane xla and meshes do not accept.
std::vector<GivenFlag> kernel_settings(const KernelFlags& flags);

// Adds the flags of a request, a kernel and a budget.
void add_fit_flags(Command& command, FitFlags& flags);

// A call that does not fit is no error here; the report says so.
Result<FitReport> fit_request(const FitFlags& flags);

}  // namespace tessera::cli
