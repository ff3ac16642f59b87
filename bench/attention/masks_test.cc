// bench/attention/masks_test.cc: --mask of `tessera-bench plan` and
// `attention`.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "tests/program.h"

namespace tessera::bench {
namespace {

using nlohmann::json;

class BenchMasks : public tessera::testing::Program {
 protected:
  std::string said(const tessera::testing::Arguments& arguments) {
    bench(arguments);
    return out_;
  }
};

TEST_F(BenchMasks, TakesRoutedMasks) {
  const json plan =
      json::parse(said({"plan", "--mask", "causal & documents & routed(2, 64)",
                        "--tokens", "1024", "--json"}));
  ASSERT_EQ(code_, 0) << err_;
  ASSERT_EQ(plan["cases"].size(), 1U);
  EXPECT_EQ(plan["cases"][0]["tokens"], 1024);
  EXPECT_NE(plan["cases"][0]["picks"].get<std::string>().find("clustered"),
            std::string::npos);
  const json attention =
      json::parse(said({"attention", "--mask", "causal & routed(2, 64)",
                        "--tokens", "256", "--head-dim", "16", "--dtype", "f32",
                        "--threads", "1", "--seconds", "0.01", "--json"}));
  ASSERT_EQ(code_, 0) << err_;
  EXPECT_EQ(attention["mask"], "causal & routed(2, 64)");
  ASSERT_EQ(attention["rows"].size(), 1U);
  said({"attention", "--mask", "causal", "--cases", "full"});
  EXPECT_EQ(
      err_,
      "tessera-bench: [cli] --mask is a case of its own, found --cases beside "
      "it\n");
}

TEST_F(BenchMasks, PlansDocumentsAndTilesThatAreGiven) {
  const json plan = json::parse(
      said({"plan", "--mask", "causal & documents", "--tokens", "1024",
            "--docs", "lengths:600,424", "--tile", "128x64", "--json"}));
  ASSERT_EQ(code_, 0) << err_;
  EXPECT_EQ(plan["tile"], json({128, 64}));
  const json row = plan["cases"][0];
  EXPECT_EQ(row["docs"], "lengths:600,424");
  EXPECT_GT(row["plan_ns"], 0);
  // The same plan as that of `tessera plan`.
  ASSERT_EQ(
      program({"plan", "--mask", "causal & documents", "--q-len", "1024",
               "--docs", "lengths:600,424", "--tile", "128x64", "--json"}),
      0)
      << err_;
  EXPECT_EQ(row["digest"], json::parse(out_)["digest"]);
  said({"plan", "--mask", "causal", "--docs", "lengths:600,424"});
  EXPECT_EQ(err_,
            "tessera-bench: [cli] --docs goes with a mask that names "
            "documents, found 'causal'\n");
  said({"plan", "--mask", "causal", "--tile", "0"});
  EXPECT_EQ(code_, 2);
  said({"plan", "--tile", "64"});
  EXPECT_EQ(err_,
            "tessera-bench: [cli] --tile goes with --mask, found it alone\n");
  said({"plan", "--tokens", "64"});
  EXPECT_EQ(err_,
            "tessera-bench: [cli] --tokens goes with --mask, found it alone\n");
}

}  // namespace
}  // namespace tessera::bench
