// cli/plan/command_test.cc: the plan that `tessera plan` saves, and its time.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tessera/batch.h"
#include "tests/program.h"
#include "tests/spans.h"

namespace tessera::cli {
namespace {

using PlanCommand = tessera::testing::Program;
using tessera::testing::Arguments;

// A fact that no mask names gives a warning in the report, not in the plan.
TEST_F(PlanCommand, AnUnusedFactIsSavedToo) {
  program({"plan", "--mask", "causal", "--q-len", "64", "--docs",
           "lengths:30,34", "-o", file("plan")});
  EXPECT_EQ(code_, 0) << err_;
  EXPECT_NE(err_.find("found doc_ids unused"), std::string::npos) << err_;
  const auto saved = load_plan(file("plan"));
  ASSERT_TRUE(saved) << saved.error().message;
  EXPECT_TRUE(saved->plan().warnings.empty());
  EXPECT_TRUE(saved->facts().doc_ids.has_value());
}

// The reported time is that of the planning whose result is shown. A saved plan
// is planned again and is the same.
TEST_F(PlanCommand, PlansOnceAndTellsWhatThatTook) {
  const Arguments flags = {"plan",
                           "--mask",
                           "causal & documents",
                           "--docs",
                           "lognormal:mean=100,seed=1",
                           "--q-len",
                           "4096"};
  std::set<std::string> digests;
  for (const Arguments& one :
       {flags, Arguments{"plan", "--plan", file("plan")}}) {
    const Trace trace;
    ASSERT_EQ(program(one, {"--json"}), 0) << err_;
    EXPECT_EQ(tessera::testing::spans_of(trace)["plan make_plan"], 1);
    const auto told = nlohmann::json::parse(out_);
    EXPECT_GT(told["plan_ns"], 0);
    digests.insert(told["digest"]);
    if (one == flags) {
      ASSERT_EQ(program(one, {"-o", file("plan")}), 0) << err_;
      EXPECT_NE(out_.find(" us, once, memory cold\n"), std::string::npos)
          << out_;
    }
  }
  EXPECT_EQ(digests.size(), 1U);
}

}  // namespace
}  // namespace tessera::cli
