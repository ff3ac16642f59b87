// bench/harness/times.h: times of several runs.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::bench {

struct RunTimes {
  double best_ms = 0;
  double median_ms = 0;
  int64_t runs = 0;
};
RunTimes times_of(std::vector<double> ms);  // of at least one

// Where others kept more cores busy than this, figures are provisional.
inline constexpr double kQuietCores = 0.1;

}  // namespace tessera::bench
