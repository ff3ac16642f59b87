// tests/last_bits.h: measures the float32 error of training steps: how much
// losses and norms change when the last bit of every parameter changes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "model/checkpoint.h"
#include "tessera/train.h"

namespace tessera::testing {

// How far a step's loss and norm may be from those of another program.
struct Apart {
  double loss = 0, norm = 0;
};

// The checkpoint with every parameter moved to a neighboring float.
inline std::string an_ulp_away(const ModelConfig& config,
                               const std::vector<ModelParameter>& parameters,
                               const std::string& checkpoint,
                               std::mt19937& random) {
  auto state = model::read_checkpoint(checkpoint, config, parameters);
  EXPECT_TRUE(state) << state.error().message;
  if (!state) return checkpoint;
  const float infinity = std::numeric_limits<float>::infinity();
  for (std::vector<float>& values : state->values[0]) {
    for (float& v : values) {
      v = std::nextafter(v, random() % 2 == 0 ? infinity : -infinity);
    }
  }
  return *model::write_checkpoint(config, {}, {}, parameters, *state);
}

inline std::vector<StepReport> steps_from(Trainer& trainer,
                                          const std::string& checkpoint,
                                          const std::vector<Rows>& rows,
                                          const StepRates& rates) {
  auto ok = trainer.restore(checkpoint);
  EXPECT_TRUE(ok) << ok.error().message;
  std::vector<StepReport> out(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    auto told = trainer.step(rows[i], rates);
    EXPECT_TRUE(told) << told.error().message;
    if (told) out[i] = *told;
  }
  return out;
}

// For each step from the trainer's state, how far a program may be that sums in
// another order. The trainer's state is restored. The bound is three times the
// change by last bits in this step or one before it, plus the number's own last
// bit: once for each of the two programs, once for what the draws miss. It is
// 256 roundings at most.
inline std::vector<Apart> apart_by_last_bits(Trainer& trainer,
                                             const ModelConfig& config,
                                             const std::vector<Rows>& rows,
                                             const StepRates& rates) {
  const std::string start = *trainer.checkpoint();
  const auto want = steps_from(trainer, start, rows, rates);
  std::vector<Apart> moved(rows.size());  // relative
  std::mt19937 random(1);
  for (int draw = 0; draw < 8; ++draw) {
    const auto near = steps_from(
        trainer, an_ulp_away(config, trainer.parameters(), start, random), rows,
        rates);
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto far = [](double a, double b) { return std::abs(a - b) / b; };
      moved[i].loss = std::max(moved[i].loss, far(near[i].loss, want[i].loss));
      moved[i].norm = std::max(
          moved[i].norm, far(near[i].gradient_norm, want[i].gradient_norm));
    }
  }
  auto ok = trainer.restore(start);
  EXPECT_TRUE(ok) << ok.error().message;
  const auto bound = [](double most) {
    return std::min(3 * (most + 0x1p-23), 256 * 0x1p-24);
  };
  std::vector<Apart> out;
  Apart most;
  for (size_t i = 0; i < rows.size(); ++i) {
    most.loss = std::max(most.loss, moved[i].loss);
    most.norm = std::max(most.norm, moved[i].norm);
    out.push_back({bound(most.loss) * want[i].loss,
                   bound(most.norm) * want[i].gradient_norm});
  }
  return out;
}

}  // namespace tessera::testing
