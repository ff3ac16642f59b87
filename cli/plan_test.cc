// cli/plan_test.cc: what `tessera plan` saves.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "cli/program.h"
#include "tessera/plan_file.h"

namespace tessera::cli {
namespace {

// A fact that no mask names is a warning of the report, not of the plan.
TEST(PlanCommand, AnUnusedFactIsSavedToo) {
  const std::string path =
      ::testing::TempDir() + "plan" + std::to_string(getpid());
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int code = run_program({"plan", "--mask", "causal", "--q-len", "64",
                                "--docs", "lengths:30,34", "-o", path});
  ::testing::internal::GetCapturedStdout();
  const std::string errors = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(code, 0) << errors;
  EXPECT_NE(errors.find("found doc_ids unused"), std::string::npos) << errors;
  const auto file = load_plan(path);
  std::filesystem::remove(path);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(file->plan.warnings.empty());
  EXPECT_TRUE(file->facts.doc_ids.has_value());
}

}  // namespace
}  // namespace tessera::cli
