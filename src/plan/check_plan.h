// plan/check_plan.h: a plan against brute force, pair by pair.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tessera/plan.h"

namespace tessera::plan {

struct PlanCheck {
  int64_t tiles = 0;  // that were looked at
  int64_t pairs = 0;
  int64_t wrong = 0;  // tiles
  std::string first_wrong;
  // The transposed lists hold the same tiles, or the rest is half a check.
  bool transposed_agrees = false;

  bool right() const { return wrong == 0 && transposed_agrees; }
};

// `sample`: so many tile rows of each list, drawn by `seed`; 0: all. `progress`
// is told of the pairs so far.
PlanCheck check_plan(const Legality& legality, const Plan& plan, int64_t sample,
                     uint64_t seed,
                     const std::function<void(int64_t)>& progress = {});

}  // namespace tessera::plan
