// bench/xla/xla_test.cc: a whole run of `tessera-bench xla`.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/plugins.h"
#include "tests/program.h"

namespace tessera::bench {

using cli::kOk;

namespace {

using nlohmann::json;

class BenchXla : public tessera::testing::Program {
 protected:
  void SetUp() override {
    auto plugin = testing::real_plugin("xla_cpu_pjrt");
    if (testing::is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
  }
};

// A row for each way, with all fields for a comparison.
TEST_F(BenchXla, HasARowForEachMethod) {
  bench({"xla", "--json", "--tokens", "512", "--heads", "1", "--head-dim", "16",
         "--dtype", "f32", "--rounds", "1", "--backward"});
  const json result = json::parse(out_, nullptr, false);
  ASSERT_EQ(code_, kOk) << err_;
  EXPECT_TRUE(result["passed"]);
  ASSERT_EQ(result["tables"].size(), 2u);
  for (const json& table : result["tables"]) {
    EXPECT_GT(table["ratio"], 0);
    EXPECT_GT(table["density"], 0.4);
    std::vector<std::string> names;
    for (const json& row : table["rows"]) {
      names.push_back(row["name"]);
      EXPECT_EQ(row["why"], "") << row;
      EXPECT_GT(row["median_ms"], 0);
      EXPECT_GT(row["max_ratio"], 0);
      EXPECT_LE(row["max_ratio"], 1);
    }
    EXPECT_EQ(names, (std::vector<std::string>{"xla worklist", "xla chunked",
                                               "xla dense", "cpu"}));
  }
}

// Only the program of the method, which a compiler can read.
TEST_F(BenchXla, PrintsAProgram) {
  bench({"xla", "--program", "--tokens", "512", "--heads", "1", "--head-dim",
         "16", "--dtype", "f32", "--methods", "dense"});
  ASSERT_EQ(code_, kOk) << err_;
  EXPECT_NE(out_.find("func.func public @main"), std::string::npos);
  EXPECT_NE(out_.find("tensor<1x1x512x16xf32>"), std::string::npos) << out_;
}

}  // namespace
}  // namespace tessera::bench
