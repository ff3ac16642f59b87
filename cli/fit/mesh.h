// cli/fit/mesh.h: what each chip of a mesh needs for a batch.
#pragma once

#include "cli/fit/flags.h"
#include "cli/fit/report.h"
#include "tessera/fit.h"

namespace tessera::cli {

// A budget that is too small is no error yet.
Result<FitReport> fit_on_mesh(const MeshFitCall& asked);
// Of the batch that the flags tell of, whose facts are read. `spread` has the
// mesh and how the batch lies on it.
Result<FitReport> fit_on_mesh(const FitFlags& flags, LaneId lane,
                              const SessionOptions& spread);

}  // namespace tessera::cli
