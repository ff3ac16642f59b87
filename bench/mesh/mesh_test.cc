// bench/mesh/mesh_test.cc: a whole run of `tessera-bench mesh`.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/plugins.h"
#include "tests/program.h"

namespace tessera::bench {

using cli::kOk;
using cli::kRefused;

namespace {

using nlohmann::json;

class BenchMesh : public tessera::testing::Program {
 protected:
  void SetUp() override {
    auto plugin = testing::real_plugin("lammps_jax_pjrt_cpu");
    if (testing::is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
  }
};

TEST_F(BenchMesh, HasARowForOneDeviceAndEachBalance) {
  bench({"mesh", "--json", "--tokens", "256", "--mean", "50", "--heads", "2",
         "--kv-heads", "1", "--head-dim", "16", "--devices", "2", "--layers",
         "2", "--rounds", "1"});
  const json result = json::parse(out_, nullptr, false);
  ASSERT_EQ(code_, kOk) << err_;
  EXPECT_TRUE(result["passed"]);
  EXPECT_EQ(result["plugin"], "lammps_jax_pjrt_cpu");
  std::vector<std::string> names;
  for (const json& row : result["rows"]) {
    names.push_back(row["name"]);
    EXPECT_TRUE(row["passed"]) << row;
    EXPECT_GT(row["max_bound_ratio"], 0);
    for (const char* ms :
         {"forward_ms", "backward_ms", "cpu_ms", "stay_forward_ms",
          "stay_backward_ms", "put_and_fetch_ms"}) {
      EXPECT_GT(row[ms], 0) << ms;
    }
  }
  EXPECT_EQ(names, (std::vector<std::string>{"one device", "seq=2 contiguous",
                                             "seq=2 headtail", "seq=2 rows",
                                             "seq=2 tasks"}));
}

TEST_F(BenchMesh, RefusesWhatItCannotMeasure) {
  bench({"mesh", "--devices", "1"});
  EXPECT_EQ(code_, kRefused);
  EXPECT_NE(err_.find("--devices"), std::string::npos) << err_;
  bench({"mesh", "--heads", "4", "--kv-heads", "3"});
  EXPECT_EQ(code_, kRefused);
  EXPECT_NE(err_.find("found 3 for 4"), std::string::npos) << err_;
  bench({"mesh", "--head-dim", "12"});
  EXPECT_EQ(code_, kRefused);
  EXPECT_NE(err_.find("found 12"), std::string::npos) << err_;
}

}  // namespace
}  // namespace tessera::bench
