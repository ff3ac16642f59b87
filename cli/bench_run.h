// cli/bench_run.h: times the cpu lane on one row of `tessera bench attention`.
#pragma once

#include "cli/bench_rows.h"
#include "tessera/result.h"

namespace tessera::cli {

// Runs until `seconds` are spent, three times at least unless that takes four
// times as long, after a run that does not count. A run is cpu_prepare,
// cpu_forward and, for a backward row, cpu_backward; the plan is made once,
// outside. Fills in the row's `pairs`. The output of sampled queries is judged
// by a plain fp64 softmax: an error where it is further off than the dtype
// explains.
Result<OurTimes> measure_ours(BenchRow& row, Isa isa, double seconds);

}  // namespace tessera::cli
