// plan/verify.h: are these the lists that a request and its facts plan to?
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/facts.h"
#include "tessera/plan.h"

namespace tessera::plan {

// What a forward list does not tell but planning does.
struct Verified {
  int64_t heads = 1;
  std::vector<int64_t> legal_pairs;
  std::optional<RouteMeaning> meaning;
  std::vector<std::string> warnings;
};

// Row by row, stopping at the first difference: a list that claims little can
// not make this allocate, or work through, much more than it claims. `forward`
// must be well formed; its sizes may be any.
Result<Verified> verify_forward(const Request& request, const Facts& facts,
                                const Worklist& forward,
                                std::string_view where);

}  // namespace tessera::plan
