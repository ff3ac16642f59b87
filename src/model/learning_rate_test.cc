// model/learning_rate_test.cc: the schedule against its formula at each step.
#include "model/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <string>

namespace tessera::model {
namespace {

// In long double, by the squared cosine of half the angle.
double by_formula(const RateSchedule& s, int64_t step) {
  const long double peak = s.peak.learning_rate;
  if (step <= s.warmup) {
    return static_cast<double>(peak * static_cast<long double>(step) /
                               static_cast<long double>(s.warmup));
  }
  const auto gone = static_cast<long double>(step - s.warmup) /
                    static_cast<long double>(s.steps - s.warmup);
  const long double half = std::cos(std::numbers::pi_v<long double> / 2 * gone);
  return static_cast<double>(peak * (0.1L + 0.9L * half * half));
}

TEST(LearningRate, IsThatOfTheFormulaAtEachStep) {
  // In units of 2^-53 of the peak. The cosine's argument, at most pi, has three
  // roundings: 10; the cosine: 2; its sum with 1: 2. Half of this sum counts:
  // 7. The share and its product: 2; the tenth and the sum: 2; the product with
  // the peak: 1. The formula is rounded once: 1. Total 13.
  const double most = 13 * 0x1p-53;
  for (const double peak : {1.0, 3e-4, 0x1p-40}) {
    for (const int64_t steps : {1, 2, 3, 7, 20, 64, 1000}) {
      for (const int64_t warmup : {int64_t{0}, int64_t{1}, usual_warmup(steps),
                                   steps - 1, steps, 3 * steps}) {
        const RateSchedule s = {
            {.learning_rate = peak, .max_norm = 2}, warmup, steps};
        double before = 0;
        for (int64_t step = 1; step <= steps; ++step) {
          auto rates = rates_at(s, step);
          ASSERT_TRUE(rates) << rates.error().message;
          const double rate = rates->learning_rate;
          EXPECT_NEAR(rate, by_formula(s, step), most * peak)
              << step << " of " << steps << ", warm-up " << warmup;
          EXPECT_EQ(rates->max_norm, 2);
          EXPECT_TRUE(step <= warmup ? rate > before
                                     : step == 1 || rate < before)
              << step << " of " << steps << ", warm-up " << warmup;
          if (step == warmup) {
            EXPECT_EQ(rate, peak);
          }
          before = rate;
        }
      }
    }
  }
}

TEST(LearningRate, RefusesWhatIsNoStepOfTheRun) {
  const StepRates peak = {.learning_rate = 1};
  const auto refused = [](const RateSchedule& s, int64_t step) {
    auto rates = rates_at(s, step);
    return rates ? "" : rates.error().message;
  };
  const std::string rule =
      "[train] a step must be one of the run's and a warm-up at least 0 steps, "
      "found ";
  EXPECT_EQ(refused({peak, 2, 4}, 5), rule + "step 5 of 4 and a warm-up of 2");
  EXPECT_EQ(refused({peak, 0, 4}, 0), rule + "step 0 of 4 and a warm-up of 0");
  EXPECT_EQ(refused({peak, -1, 4}, 1),
            rule + "step 1 of 4 and a warm-up of -1");
  EXPECT_EQ(refused({peak, 0, 0}, 1), rule + "step 1 of 0 and a warm-up of 0");
  for (const double bad : {-1.0, 1e39, std::numeric_limits<double>::infinity(),
                           std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_NE(refused({{.learning_rate = bad}, 0, 4}, 1), "") << bad;
  }
  EXPECT_NE(refused({{.learning_rate = 1, .max_norm = 0}, 0, 4}, 1), "");
}

}  // namespace
}  // namespace tessera::model
