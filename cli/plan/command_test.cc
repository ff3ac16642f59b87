// cli/plan/command_test.cc: what `tessera plan` saves.
#include <gtest/gtest.h>

#include "tessera/batch.h"
#include "tests/program.h"

namespace tessera::cli {
namespace {

using PlanCommand = tessera::testing::Program;

// A fact that no mask names is a warning of the report, not of the plan.
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

}  // namespace
}  // namespace tessera::cli
