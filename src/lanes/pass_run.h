// lanes/pass_run.h: what a lane counts of one pass over one layer.
#pragma once

#include <cstdint>

namespace tessera::lanes {

// `run_ms` is the time in kernels, without transfers.
struct PassRun {
  int64_t tiles_run = 0, tiles_skipped = 0, pairs_run = 0;
  double run_ms = 0, transfer_ms = 0;
};

}  // namespace tessera::lanes
