// cli/receipt/second_run.h: runs the call of a receipt again, from its fields
// and the files that it names.
#pragma once

#include <optional>
#include <string>

#include "run/verify.h"

namespace tessera::cli {

// Runs a plan, an exported operation or a training run again, or makes a kernel
// that was only compiled. `plugin` is a plugin that the user trusts.
Result<run::SecondRun> second_run(const receipt::Receipt& claimed,
                                  const std::optional<std::string>& plugin);

}  // namespace tessera::cli
