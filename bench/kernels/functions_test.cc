// bench/kernels/functions_test.cc: `tessera-bench functions`: a row for each
// function and ISA of this machine, with right results.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "base/isa.h"
#include "tests/program.h"

namespace tessera::bench {
namespace {

using nlohmann::json;

class FunctionsBench : public tessera::testing::Program {};

TEST_F(FunctionsBench, HasARowForEachIsa) {
  ASSERT_EQ(bench({"functions", "--seconds", "0.001", "--json"}), cli::kOk)
      << err_;
  const json result = json::parse(out_);
  EXPECT_TRUE(result["passed"]);
  std::set<std::string> names, isas;
  for (const json& row : result["rows"]) {
    names.insert(row["function"]);
    isas.insert(row["isa"]);
    for (const char* time : {"ns", "libm_ns", "limit_ns"}) {
      EXPECT_GT(row[time], 0) << time;
    }
    EXPECT_LE(row["roundings"], 8);
  }
  EXPECT_EQ(names, (std::set<std::string>{"exp2", "log2", "tanh"}));
  EXPECT_EQ(result["rows"].size(), names.size() * isas.size());
  for (const Isa isa : machine_isas()) {
    if (isa >= Isa::avx512bf16) continue;
    EXPECT_EQ(isas.count(std::string(to_string(isa))), 1U);
  }
  EXPECT_EQ(bench({"functions", "--seconds", "0"}), cli::kRefused);
}

}  // namespace
}  // namespace tessera::bench
