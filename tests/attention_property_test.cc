// tests/attention_property_test.cc: the cpu lane agrees with the reference, for
// random masks, facts, shapes and dtypes.
#include <gtest/gtest.h>

#include "plan/make_plan.h"
#include "tests/attention_case.h"
#include "tests/hold_for_all.h"

namespace tessera::testing {
namespace {

TEST(AttentionProperty, CpuLaneIsTheReference) {
  hold_for_all(
      [](const RandomCase& plan) -> Fault {
        // Cases that the planner refuses never reach the lane.
        const auto request = plan.request();
        if (!request || !plan::make_plan(*request, plan.facts())) return {};
        const AttentionCase c = random_attention(plan);
        auto fault = cpu_fault(c);
        if (fault) *fault += "\n" + describe(c);
        return fault;
      },
      120);
}

}  // namespace
}  // namespace tessera::testing
