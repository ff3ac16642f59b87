// cli/plan/timing.cc: runs until the minimum has settled or patience is over.
#include "cli/plan/timing.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "plan/make_plan.h"

namespace tessera::cli {

Result<int64_t> least_ns(const std::function<Result<void>()>& work) {
  using Clock = std::chrono::steady_clock;
  constexpr int kMinRuns = 3;
  constexpr int kMaxRuns = 100;
  constexpr auto kPatience = std::chrono::milliseconds(200);
  constexpr auto kLimit = std::chrono::seconds(1);  // whatever the least
  int64_t best = std::numeric_limits<int64_t>::max();
  const Clock::time_point start = Clock::now();
  for (int run = 0; run < kMaxRuns; ++run) {
    const Clock::time_point begin = Clock::now();
    const auto spent = begin - start;
    if (run >= kMinRuns && spent > kPatience) break;
    if (run > 0 && spent > kLimit) break;
    if (auto e = work(); !e) return e.error();
    const auto took = Clock::now() - begin;
    best = std::min<int64_t>(
        best,
        std::chrono::duration_cast<std::chrono::nanoseconds>(took).count());
  }
  return best;
}

Result<int64_t> best_plan_ns(const Request& request, const Facts& facts) {
  Plan plan;
  return least_ns([&]() -> Result<void> {
    auto sweep = mask::start_sweep(request, facts);
    if (!sweep) return sweep.error();
    return plan::plan_sweep(*sweep, plan);
  });
}

}  // namespace tessera::cli
