// model/optimizer.h: AdamW, written as operations of the program.
#pragma once

#include "model/layer.h"
#include "tessera/train.h"

namespace tessera::model {

// The numbers that change with each step, in the order of argument "rates".
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
// The sum of squares over all gradients.
Value squares_of(Writer& w, const Values& gradients);
// The gradient is multiplied by `scale`. Weight decay applies to matrices only.
Moments write_adamw(Writer& w, const OptimizerSettings& settings,
                    const Moments& before, const Value& gradient,
                    const Value& rates, const Value& scale);
// 1, or max_norm / norm where the norm is above it.
Value clip_scale(Writer& w, const Value& norm, const Value& rates);

}  // namespace tessera::model
