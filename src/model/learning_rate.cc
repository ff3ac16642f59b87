// model/learning_rate.cc: a linear warm-up, then half a period of a cosine.
#include "model/learning_rate.h"

#include <cmath>

#include "base/fail.h"

namespace tessera::model {
namespace {

constexpr double kLastShare = 0.1;

}  // namespace

Result<void> check_rates(const StepRates& rates) {
  if (rates.learning_rate < 0 ||
      !std::isfinite(static_cast<float>(rates.learning_rate))) {
    return invalid("train",
                   "a learning rate must be at least 0 and finite in float32, "
                   "found {}",
                   rates.learning_rate);
  }
  if (rates.max_norm > 0) return {};
  return invalid("train",
                 "the norm that gradients are scaled to must be above 0, found "
                 "{}",
                 rates.max_norm);
}

Result<StepRates> rates_at(const RateSchedule& s, int64_t step) {
  if (auto e = check_rates(s.peak); !e) return e.error();
  if (step < 1 || step > s.steps || s.warmup < 0) {
    return invalid("train",
                   "a step must be one of the run's and a warm-up at least 0 "
                   "steps, found step {} of {} and a warm-up of {}",
                   step, s.steps, s.warmup);
  }
  StepRates out = s.peak;
  if (step <= s.warmup) {
    out.learning_rate *=
        static_cast<double>(step) / static_cast<double>(s.warmup);
    return out;
  }
  const double gone = static_cast<double>(step - s.warmup) /
                      static_cast<double>(s.steps - s.warmup);
  const double cosine = (1 + std::cos(std::acos(-1.0) * gone)) / 2;
  out.learning_rate *= kLastShare + (1 - kLastShare) * cosine;
  return out;
}

}  // namespace tessera::model
