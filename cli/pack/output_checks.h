// cli/pack/output_checks.h: what may be written, looked at before any work.
#pragma once

#include <string>

#include "cli/pack/options.h"
#include "tessera/result.h"

namespace tessera::cli {

// `to_folder`: --out is one.
Result<void> check_stats(const PackFlags& flags, const std::string& stats,
                         bool to_folder);
// Nothing that is read may be written over.
Result<void> check_out(const PackFlags& flags, const std::string& out);

}  // namespace tessera::cli
