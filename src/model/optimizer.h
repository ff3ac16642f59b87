// model/optimizer.h: AdamW, as ops.
#pragma once

#include "model/layer.h"
#include "tessera/train.h"

namespace tessera::model {

// What changes with each step, in the order of an argument of the program.
enum class Rate : uint8_t {
  learning,
  correct1,  // 1 / (1 - beta1^t) of step t
  correct2,
  max_norm,  // of all gradients; above it they are scaled down
};
inline constexpr int64_t kRates = 4;

struct Moments {
  Value value, first, second;
};
// The sum of the squares of all.
Value squares_of(Writer& w, const Values& gradients);
// `scale` is what the gradient is scaled by; matrices decay.
Moments write_adamw(Writer& w, const OptimizerSettings& settings,
                    const Moments& before, const Value& gradient,
                    const Value& rates, const Value& scale);
// 1, or max_norm / norm where the norm is above it.
Value clip_scale(Writer& w, const Value& norm, const Value& rates);

}  // namespace tessera::model
