// bench/plan/measure.h: time and memory of planning one mask.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/plan.h"
#include "tessera/result.h"

namespace tessera::bench {

struct PlanCase {
  std::string mask;
  int64_t tokens;
  std::string docs;         // source of document ids; "": no documents
  double goal_us;           // 0: no goal, the row only shows growth
  double goal_extra_bytes;  // for each token; 0: no goal
  Tile tile = {256, 256};
};

// The cases that are measured if no mask is given.
std::vector<PlanCase> plan_cases();

// The default source of document ids.
inline constexpr const char* kPlanDocs = "lognormal:mean=2048,seed=0";

struct PlanCost {
  int64_t ns = 0;  // the least of several runs into reused memory
  int64_t tiles = 0;
  int64_t result_bytes = 0;
  int64_t extra_bytes = 0;  // peak while planning, beyond the result
  std::string digest;
  std::string picks;    // how the picks were drawn, for a mask with a router
  double route_ms = 0;  // of routing, before planning
};

Result<PlanCost> measure_plan(const PlanCase& c);

}  // namespace tessera::bench
