// cli/shard/command_test.cc: what `tessera shard` prints.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "tests/program.h"

namespace tessera::cli {
namespace {

using nlohmann::json;
using ShardCommand = tessera::testing::Program;

TEST_F(ShardCommand, ReportsAsJson) {
  for (const char* balance : {"contiguous", "headtail", "rows", "tasks"}) {
    program({"shard", "--mask", "causal & documents", "--q-len", "8192",
             "--docs", "lognormal:mean=500,seed=1", "--tile", "64", "--mesh",
             "data=1,seq=8", "--balance", balance, "--json"});
    ASSERT_EQ(code_, 0) << err_;
    const json out = json::parse(out_);
    EXPECT_EQ(out["balance"], balance);
    EXPECT_GE(out["work_max_over_mean"], 1.0);
    EXPECT_GE(out["tokens_max_over_mean"], 1.0);
    EXPECT_GE(out["sent_beside_all_gather"], out["needed_beside_all_gather"]);
    EXPECT_GT(out["plan_ns"], 0);
    ASSERT_EQ(out["shards"].size(), 8U);
    int64_t most = 0;
    int64_t sum = 0;
    for (const json& shard : out["shards"]) {
      most = std::max<int64_t>(most, shard["steps"]);
      sum += shard["steps"].get<int64_t>();
    }
    EXPECT_DOUBLE_EQ(out["work_max_over_mean"],
                     8 * static_cast<double>(most) / static_cast<double>(sum));
  }
}

TEST_F(ShardCommand, ReportsAsText) {
  program({"shard", "--mask", "causal", "--q-len", "1024", "--mesh", "seq=2"});
  EXPECT_EQ(code_, 0) << err_;
  EXPECT_NE(out_.find("2 shards, rows"), std::string::npos) << out_;
}

TEST_F(ShardCommand, DrawsAPicture) {
  program({"shard", "--mask", "causal", "--q-len", "1024", "--mesh", "seq=2",
           "--balance", "tasks", "--picture", file("shards.svg")});
  EXPECT_EQ(code_, 0) << err_;
  const auto svg = read_file(file("shards.svg"), 1 << 20);
  ASSERT_TRUE(svg) << svg.error().message;
  EXPECT_NE(svg->find("causal: tasks"), std::string::npos);
  EXPECT_NE(svg->find("Who computes it"), std::string::npos);
  EXPECT_TRUE(svg->ends_with("</svg>\n"));
}

// The TPU kernel on every device; what it sends is what the report counts.
TEST_F(ShardCommand, EmitsAProgramOfTheKernel) {
  for (const bool backward : {false, true}) {
    std::vector<std::string> flags = {"shard",
                                      "--mask",
                                      "causal & documents",
                                      "--q-len",
                                      "2048",
                                      "--docs",
                                      "lengths:1500,548",
                                      "--mesh",
                                      "seq=4",
                                      "--balance",
                                      "tasks",
                                      "--lane",
                                      "mosaic",
                                      "--emit",
                                      file("sharded.mlir"),
                                      "--json"};
    if (backward) flags.push_back("--backward");
    program(flags);
    ASSERT_EQ(code_, 0) << err_;
    const json report = json::parse(out_);
    const auto text = read_file(file("sharded.mlir"), 1 << 24);
    ASSERT_TRUE(text) << text.error().message;
    EXPECT_NE(text->find("tpu_custom_call"), std::string::npos);
    program({"audit", file("sharded.mlir"), "--json"});
    ASSERT_EQ(code_, 0) << err_;
    EXPECT_EQ(json::parse(out_)["sent_bytes"],
              report[backward ? "backward" : "forward"]["sent_bytes"]);
  }
  program({"shard", "--mask", "causal", "--q-len", "1024", "--mesh", "seq=2",
           "--head-dim", "80", "--lane", "mosaic", "--emit", file("no.mlir")});
  EXPECT_EQ(code_, 2);
  EXPECT_EQ(err_,
            "tessera: [mosaic] head dim must be a multiple of 64 up to 256, "
            "found 80\n");
}

TEST_F(ShardCommand, RefusesInOneLine) {
  const auto error = [&](std::vector<std::string> flags) {
    std::vector<std::string> all = {"shard", "--mask", "causal", "--q-len",
                                    "1024"};
    all.insert(all.end(), flags.begin(), flags.end());
    program(all);
    EXPECT_EQ(code_, 2);
    return err_;
  };
  EXPECT_EQ(error({}), "tessera: [cli] --mesh must be given, found none\n");
  EXPECT_EQ(error({"--mesh", "seq=2", "--picture", file("a.png")}),
            "tessera: [cli] --picture must end in .svg, found '" +
                file("a.png") + "'\n");
  EXPECT_EQ(error({"--mesh", "seq"}),
            "tessera: [mesh] an axis must read name=size, found 'seq'\n");
  EXPECT_EQ(error({"--mesh", "seq=2", "--balance", "fair"}),
            "tessera: [shard] balance must be contiguous, headtail, rows or "
            "tasks, found 'fair'\n");
  EXPECT_EQ(error({"--mesh", "seq=2", "--lane", "cpu"}),
            "tessera: [cli] --lane must be xla or mosaic, found 'cpu'\n");
  EXPECT_EQ(error({"--mesh", "seq=2", "--lane", "mosaic"}),
            "tessera: [cli] --lane goes with --emit, found no --emit\n");
  EXPECT_EQ(error({"--mesh", "head=3"}),
            "tessera: [shard] an axis must divide what it splits, found head=3 "
            "for 2 KV heads (uneven pads them)\n");
  EXPECT_EQ(error({"--mesh", "seq=2", "--dtype", "i8"}),
            "tessera: [cli] --dtype must be f32, bf16 or f16, found 'i8'\n");
}

}  // namespace
}  // namespace tessera::cli
