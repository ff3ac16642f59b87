// cli/receipt/second_run.h: runs what a receipt tells of, from its own fields
// and the files that it names.
#pragma once

#include <optional>
#include <string>

#include "run/verify.h"

namespace tessera::cli {

// A plan, an exported operation or a kernel that was only compiled. `plugin` is
// one that whoever asks trusts.
Result<run::SecondRun> second_run(const receipt::Receipt& claimed,
                                  const std::optional<std::string>& plugin);

}  // namespace tessera::cli
