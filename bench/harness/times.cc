// bench/harness/times.cc: minimum and median of run times.
#include "bench/harness/times.h"

#include <algorithm>

namespace tessera::bench {

RunTimes times_of(std::vector<double> ms) {
  std::sort(ms.begin(), ms.end());
  const size_t n = ms.size();
  const double median = n % 2 ? ms[n / 2] : (ms[n / 2 - 1] + ms[n / 2]) / 2;
  return {ms.front(), median, static_cast<int64_t>(n)};
}

}  // namespace tessera::bench
