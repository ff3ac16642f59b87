// cli/fit/mesh.h: what each chip of a mesh needs for a batch.
#pragma once

#include "cli/fit/flags.h"
#include "cli/fit/report.h"
#include "tessera/fit.h"

namespace tessera::cli {

// A call that does not fit is no error here; the report says so.
Result<FitReport> fit_on_mesh(const MeshFitCall& asked);
// Plans the batch of the flags, reading its facts. `spread` has the mesh and
// the options that spread the batch over it.
Result<FitReport> fit_on_mesh(const FitFlags& flags, LaneId lane,
                              const SessionOptions& spread);

}  // namespace tessera::cli
