// tests/hold_for_all.h: checks a property of many random cases. The first case
// that fails is shrunk and printed with the seed that makes it again.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "tests/random_case.h"

namespace tessera::testing {

// What is wrong with a case; empty if the property holds.
using Fault = std::optional<std::string>;

inline void hold_for_all(const Failing& fault, int64_t cases) {
  const uint64_t first = first_seed(1);
  const int64_t n = case_count(cases);
  for (int64_t at = 0; at < n; ++at) {
    const RandomCase c = random_case(first + static_cast<uint64_t>(at));
    const Fault found = fault(c);
    if (!found) continue;
    const RandomCase small = shrink(c, fault);
    FAIL() << "run again with TESSERA_SEED=" << c.seed << " TESSERA_CASES=1\n"
           << *found << "\nshrunk: " << fault(small).value_or("(it passes)")
           << "\n"
           << describe(small) << "\nas found:\n"
           << describe(c);
  }
}

}  // namespace tessera::testing
