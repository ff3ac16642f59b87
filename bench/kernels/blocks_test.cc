// bench/kernels/blocks_test.cc: `tessera-bench blocks`: a row for each variant
// of this machine; that its lists are right is judged by the command.
#include "kernels/blocks/blocks.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/program.h"

namespace tessera::bench {
namespace {

using nlohmann::json;

class BlocksBench : public tessera::testing::Program {};

TEST_F(BlocksBench, HasARowForEachVariant) {
  ASSERT_EQ(bench({"blocks", "--heads", "2", "--blocks", "70", "--active",
                   "0.5", "--seconds", "0.001", "--json"}),
            cli::kOk)
      << err_;
  const json result = json::parse(out_);
  std::vector<std::string> names;
  for (const json& row : result["variants"]) {
    names.push_back(row["variant"]);
    EXPECT_GT(row["bytes_us"], 0);
    EXPECT_GT(row["bits_us"], 0);
  }
  std::vector<std::string> want;
  for (const kernels::BlockVariant& v : kernels::block_variants()) {
    if (kernels::runs_here(v)) want.emplace_back(v.name);
  }
  EXPECT_EQ(names, want);
  EXPECT_GT(result["read_us"], 0);
  EXPECT_FALSE(result.contains("goals_reached"));  // of the default sizes
  EXPECT_EQ(bench({"blocks", "--blocks", "0"}), cli::kRefused);
  EXPECT_EQ(bench({"blocks", "--active", "-1"}), cli::kRefused);
}

}  // namespace
}  // namespace tessera::bench
