// tessera/contract.h: everything static that a plan's consumer depends on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/facts.h"
#include "tessera/plan.h"

namespace tessera {

struct PlanContract {
  std::string key;   // 32 hex digits; the same on every machine
  std::string text;  // canonical JSON that the key digests
  // Runtime scalars that left the key: exact window bounds, canonical order.
  std::vector<int64_t> window_bounds;
  std::vector<std::string> unused_facts;  // given, but no mask names them
  std::vector<std::string> folded;  // a line for each thing that was folded
};

// The least 2^k or 1.5 * 2^k that is not below n; 0 for 0.
int64_t bucket(int64_t n);

Result<PlanContract> make_contract(const Request& request, const Facts& facts,
                                   const Plan& plan);

// A digest of shapes and both lists: two plans are equal when it is.
std::string plan_digest(const Plan& plan);

}  // namespace tessera
