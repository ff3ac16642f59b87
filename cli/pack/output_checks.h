// cli/pack/output_checks.h: checks of output files before any work.
#pragma once

#include <string>

#include "cli/pack/options.h"
#include "tessera/result.h"

namespace tessera::cli {

// Checks the file of --stats. `to_folder`: --out is a folder.
Result<void> check_stats(const PackFlags& flags, const std::string& stats,
                         bool to_folder);
// Checks that --out would not overwrite an input.
Result<void> check_out(const PackFlags& flags, const std::string& out);

}  // namespace tessera::cli
