// plan/check_plan.h: checks a plan against brute force, pair by pair.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "tessera/plan.h"

namespace tessera::plan {

struct PlanCheck {
  int64_t tiles = 0;  // tiles checked
  int64_t pairs = 0;
  int64_t wrong = 0;  // wrong tiles
  std::string first_wrong;
  // Whether the transposed lists hold the same tiles as the forward lists.
  bool transposed_agrees = false;

  bool right() const { return wrong == 0 && transposed_agrees; }
};

// Checks `sample` tile rows of each list, drawn by `seed`; 0: all. `progress`
// is called with the number of pairs checked so far. It takes no Batch, because
// its tests need wrong plans and a Batch never has one.
PlanCheck check_plan(const Legality& legality, const Plan& plan, int64_t sample,
                     uint64_t seed,
                     const std::function<void(int64_t)>& progress = {});

}  // namespace tessera::plan
