// bench/attention/run.h: times the cpu lane on one row of `tessera-bench
// attention`.
#pragma once

#include "bench/attention/rows.h"
#include "tessera/result.h"

namespace tessera::bench {

// Runs once without counting, then until `seconds` are spent and at least three
// times, unless that takes over 4 * `seconds`. A run is a session's prepare,
// forward and, for a backward row, backward; the plan is made once, outside.
// Fills in the row's `pairs`. The results of the last run are compared to fp64;
// it is an error if they are out of their bound.
Result<OurTimes> measure_ours(BenchRow& row, Isa isa, double seconds);

}  // namespace tessera::bench
