// plan/verify.h: checks lists against the plan of a request and its facts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/facts.h"
#include "tessera/plan.h"

namespace tessera::plan {

// The results of planning that a forward list does not hold.
struct Verified {
  int64_t heads = 1;
  std::vector<int64_t> legal_pairs;
  std::optional<RouteMeaning> meaning;
  std::vector<std::string> warnings;
};

// Checks row by row and stops at the first difference, so a small list cannot
// cause much more memory or work than its own size. `forward` must be well
// formed; its sizes may be any.
Result<Verified> verify_forward(const Request& request, const Facts& facts,
                                const Worklist& forward,
                                std::string_view where);

}  // namespace tessera::plan
