// model/learning_rate.h: the rates of each step of a run.
#pragma once

#include <cstdint>

#include "tessera/train.h"

namespace tessera::model {

struct RateSchedule {
  StepRates peak;
  int64_t warmup = 0;  // steps up to the peak
  int64_t steps = 0;   // of the run; the first is step 1
};

// The warm-up if the user gives none.
constexpr int64_t usual_warmup(int64_t steps) { return steps / 20; }

// Returns an error if a step cannot be taken with these rates.
Result<void> check_rates(const StepRates& rates);

// The learning rate rises to the peak over the warm-up, then falls as a cosine
// to a tenth of it at the last step.
Result<StepRates> rates_at(const RateSchedule& schedule, int64_t step);

}  // namespace tessera::model
