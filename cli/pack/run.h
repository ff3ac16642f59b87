// cli/pack/run.h: from documents to rows in their files, and the report.
#pragma once

#include "cli/pack/report.h"

namespace tessera::cli {

Result<PackReport> run_pack(const PackFlags& flags,
                            const StreamOptions& options);

}  // namespace tessera::cli
