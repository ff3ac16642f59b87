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
RunTimes times_of(std::vector<double> ms);  // `ms` is not empty

// Figures are provisional if other processes kept more cores busy than this.
inline constexpr double kQuietCores = 0.1;

}  // namespace tessera::bench
