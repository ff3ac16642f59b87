// cli/pack/run.h: packs documents into files of rows and reports on them.
#pragma once

#include "cli/pack/report.h"

namespace tessera::cli {

Result<PackReport> run_pack(const PackFlags& flags,
                            const StreamOptions& options);

}  // namespace tessera::cli
