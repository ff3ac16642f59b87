// bench/plan/measure.h: what planning one mask takes.
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
  std::string docs;         // where ids come from; "": no documents
  double goal_us;           // 0: none, the row only shows growth
  double goal_extra_bytes;  // a token; 0: none
  Tile tile = {256, 256};
};

// The table that is measured where no mask is given.
std::vector<PlanCase> plan_cases();

// Where documents come from unless the user says it.
inline constexpr const char* kPlanDocs = "lognormal:mean=2048,seed=0";

struct PlanCost {
  int64_t ns = 0;  // the least of several runs into reused memory
  int64_t tiles = 0;
  int64_t result_bytes = 0;
  int64_t extra_bytes = 0;  // peak while planning, beyond the result
  std::string digest;
  std::string picks;    // how they were drawn, of a mask that names a router
  double route_ms = 0;  // before planning
};

Result<PlanCost> measure_plan(const PlanCase& c);

}  // namespace tessera::bench
