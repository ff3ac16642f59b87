// bench/attention/run.h: times the cpu lane on one row of `tessera-bench
// attention`.
#pragma once

#include "bench/attention/rows.h"
#include "tessera/result.h"

namespace tessera::bench {

// Runs until `seconds` are spent, three times at least unless that takes four
// times as long, after a run that does not count. A run is a session's prepare,
// forward and, for a backward row, backward; the plan is made once, outside.
// Fills in the row's `pairs`. What the last run wrote is judged against fp64:
// an error where it is out of its bound.
Result<OurTimes> measure_ours(BenchRow& row, Isa isa, double seconds);

}  // namespace tessera::bench
