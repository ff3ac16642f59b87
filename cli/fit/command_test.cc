// cli/fit/command_test.cc: `tessera fit` as a user runs it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/plugins.h"
#include "tests/program.h"

namespace tessera::cli {
namespace {

using nlohmann::json;
using tessera::testing::Arguments;

class Fit : public tessera::testing::Program {
 protected:
  int fit(const Arguments& more) { return program({"fit"}, more); }
};

TEST_F(Fit, SaysWhatEveryPartTakes) {
  ASSERT_EQ(fit({"--mask", "causal & documents", "--q-len", "4096",
                 "--backward", "--json"}),
            0)
      << err_;
  const json r = json::parse(out_);
  EXPECT_EQ(r["lane"], "xla");
  EXPECT_EQ(r["method"], "worklist");
  EXPECT_EQ(r["chip"]["name"], "v6e");
  EXPECT_TRUE(r["fits"]);
  int64_t sum = 0;
  for (const char* section : {"arguments", "outputs", "scratch"}) {
    for (const json& part : r["backward"][section]) {
      sum += part["bytes"].get<int64_t>();
    }
  }
  EXPECT_EQ(r["backward"]["bytes"]["total"], sum);
  EXPECT_GT(r["residuals"], 4 * 2 * 8 * 4096 * 128);
  ASSERT_EQ(fit({"--mask", "causal", "--q-len", "4096"}), 0);
  EXPECT_NE(out_.find("  arguments rows"), std::string::npos) << out_;
  EXPECT_EQ(out_.find("backward"), std::string::npos) << out_;
}

TEST_F(Fit, PicksHaveABudget) {
  ASSERT_EQ(program({"plan", "--mask", "causal & routed(top=2, block=128)",
                     "--q-len", "1024", "--tile", "256", "--picks",
                     "clustered:heads=4,kv_heads=2", "-o", file("plan")}),
            0)
      << err_;
  for (const char* lane : {"xla", "mosaic"}) {
    ASSERT_EQ(fit({"--plan", file("plan"), "--heads", "4", "--kv-heads", "2",
                   "--lane", lane, "--json"}),
              0)
        << err_;
    const json saved = json::parse(out_);
    EXPECT_TRUE(saved["fits"]);
    // Picks from --picks give the same budget.
    ASSERT_EQ(
        fit({"--mask", "causal & routed(top=2, block=128)", "--q-len", "1024",
             "--tile", "256", "--picks", "clustered:heads=4,kv_heads=2",
             "--heads", "4", "--kv-heads", "2", "--lane", lane, "--json"}),
        0)
        << err_;
    EXPECT_EQ(json::parse(out_), saved);
  }
}

// A kernel's vector memory is not part of HBM and is reported apart, as by
// `compile`.
TEST_F(Fit, AKernelsVectorMemoryStandsBesideItsRoom) {
  const Arguments call = {"--mask",  "causal", "--q-len", "2048",
                          "--heads", "8",      "--tile",  "256"};
  const auto with = [&](const Arguments& more) {
    Arguments out = call;
    out.insert(out.end(), more.begin(), more.end());
    return out;
  };
  const auto of_pass = [&](const char* pass, Arguments more) {
    Arguments budget = with({"--lane", "mosaic", "--json"});
    Arguments kernel = with({"--target", "v6e", "--no-compile", "--json",
                             "--emit", file("kernel.mlir")});
    for (Arguments* asked : {&budget, &kernel}) {
      asked->insert(asked->end(), more.begin(), more.end());
    }
    EXPECT_EQ(program({"compile"}, kernel), 0) << err_;
    json out = json::parse(out_)["kernel"]["vector_memory"];
    EXPECT_EQ(fit(budget), 0) << err_;
    EXPECT_EQ(json::parse(out_)[pass]["vector_memory"], out);
    return out;
  };
  constexpr int64_t kMib = int64_t{1} << 20;
  EXPECT_EQ(
      of_pass("forward", {}),
      (json{{"scratch", 16474112}, {"room", 48 * kMib}, {"limit", 96 * kMib}}));
  EXPECT_EQ(of_pass("backward", {"--backward"})["room"], 80 * kMib);
  ASSERT_EQ(fit(with({"--lane", "mosaic"})), 0) << err_;
  EXPECT_NE(out_.find("16,474,112 of 50,331,648\n"), std::string::npos) << out_;
  ASSERT_EQ(program({"explain", "--memory"}, with({"--lane", "mosaic"})), 0)
      << err_;
  EXPECT_NE(out_.find("16,474,112 of 50,331,648\n"), std::string::npos) << out_;
  ASSERT_EQ(fit(with({"--json"})), 0) << err_;
  EXPECT_FALSE(json::parse(out_)["forward"].contains("vector_memory"));
  // A kernel beyond its room is an error before any compile.
  EXPECT_EQ(fit({"--lane", "mosaic", "--mask", "causal", "--q-len", "16384",
                 "--head-dim", "256", "--tile", "1024", "--tiles-per-pass", "8",
                 "--fetch-ahead", "14"}),
            2);
  EXPECT_TRUE(err_.starts_with(
      "tessera: [mosaic] the scratch must fit 50331648 bytes of vector memory, "
      "found "))
      << err_;
}

TEST_F(Fit, WhatDoesNotFitIsSaidWithWhatWould) {
  EXPECT_EQ(fit({"--mask", "causal", "--q-len", "1048576", "--heads", "64",
                 "--tile", "512", "--backward", "--target", "v5e"}),
            1);
  EXPECT_TRUE(err_.starts_with(
      "tessera: [fit] the backward pass must fit the 15.75 GiB of a v5e "
      "device, found 192.51 GiB (sum of dk 32.00 GiB"))
      << err_;
  EXPECT_NE(err_.find("what would fit: q_len and kv_len 65536, or heads of a "
                      "chip (a mesh's axis head) 4)\n"),
            std::string::npos)
      << err_;
  EXPECT_NE(out_.find("would fit   q_len and kv_len 65536 for 1048576\n"),
            std::string::npos)
      << out_;
  // q, k, v and out take 16 GiB each, the log-sum-exp 256 MiB.
  EXPECT_NE(err_.find("; recompute saves 64.25 GiB of every other layer, of "
                      "this call nothing; what would fit: "),
            std::string::npos)
      << err_;
  EXPECT_NE(out_.find("recompute   saves 68,987,912,192 bytes of every other "
                      "layer, of this call nothing\n"),
            std::string::npos)
      << out_;
}

TEST_F(Fit, EveryMethodOfXlaHasABudget) {
  const auto needed = [&](const Arguments& more) {
    Arguments all = {"--mask", "causal", "--q-len", "16384", "--json"};
    all.insert(all.end(), more.begin(), more.end());
    EXPECT_EQ(fit(all), 0) << err_;
    const json r = json::parse(out_);
    EXPECT_EQ(r["method"], more.empty() ? json("worklist") : json(more[1]));
    return r["needed"].get<int64_t>();
  };
  const int64_t worklist = needed({});
  const int64_t chunked = needed({"--method", "chunked"});
  const int64_t dense = needed({"--method", "dense"});
  EXPECT_LT(worklist, chunked);
  EXPECT_LT(chunked, dense / 8);
  EXPECT_EQ(fit({"--mask", "causal", "--q-len", "4096", "--lane", "mosaic",
                 "--method", "dense"}),
            2);
  EXPECT_EQ(err_,
            "tessera: [cli] --method goes with --lane xla, found --lane "
            "mosaic\n");
}

// `tessera shard --fit` and `explain --memory` report the same budget.
TEST_F(Fit, AChipOfAMeshHasABudget) {
  const Arguments call = {"--mask",     "causal & documents",
                          "--docs",     "lengths:3000,1096",
                          "--q-len",    "4096",
                          "--heads",    "4",
                          "--batch",    "2",
                          "--lane",     "mosaic",
                          "--mesh",     "data=2,seq=4",
                          "--balance",  "tasks",
                          "--json",     "--backward",
                          "--kv-heads", "4"};
  ASSERT_EQ(fit(call), 0) << err_;
  const json ours = json::parse(out_);
  EXPECT_EQ(ours["lane"], "mosaic");
  EXPECT_TRUE(ours["fits"]);
  for (const char* pass : {"forward", "backward"}) {
    const json& core = ours[pass]["vector_memory"];
    EXPECT_GT(core["scratch"], 1 << 20);
    EXPECT_LE(core["scratch"], core["room"]);
  }
  Arguments shard = {"--fit", "v6e"};
  shard.insert(shard.end(), call.begin(), call.end());
  ASSERT_EQ(program({"shard"}, shard), 0) << err_;
  EXPECT_EQ(ours, json::parse(out_)["program"]["fit"]);
  Arguments memory = {"--memory"};
  memory.insert(memory.end(), call.begin(), call.end());
  ASSERT_EQ(program({"explain"}, memory), 0) << err_;
  EXPECT_EQ(ours, json::parse(out_)["memory"]);
  EXPECT_EQ(
      fit({"--mask", "causal", "--q-len", "1048576", "--heads", "64", "--tile",
           "1024", "--mesh", "head=2", "--target", "v5e", "--backward"}),
      1);
  EXPECT_NE(err_.find("what would fit: devices along "), std::string::npos)
      << err_;
  EXPECT_NE(out_.find("would fit   devices along "), std::string::npos) << out_;
}

TEST_F(Fit, FlagsOfAMeshAreChecked) {
  const auto error = [&](const Arguments& more) {
    Arguments all = {"--mask", "causal", "--q-len", "1024"};
    all.insert(all.end(), more.begin(), more.end());
    EXPECT_EQ(fit(all), 2);
    return err_;
  };
  EXPECT_EQ(error({"--mesh", "seq"}),
            "tessera: [mesh] an axis must read name=size, found 'seq'\n");
  EXPECT_EQ(error({"--mesh", "seq=2", "--balance", "fair"}),
            "tessera: [shard] balance must be contiguous, headtail, rows or "
            "tasks, found 'fair'\n");
  EXPECT_EQ(error({"--mesh", "head=3", "--kv-heads", "2"}),
            "tessera: [shard] an axis must divide what it splits, found head=3 "
            "for 2 KV heads (uneven pads them)\n");
  EXPECT_EQ(error({"--mesh", "seq=2", "--target", "v9"}),
            "tessera: [fit] a chip must be one of v4, v5e, v5p, v6e, tpu7x, "
            "found 'v9'\n");
  EXPECT_EQ(error({"--balance", "rows"}),
            "tessera: [cli] --balance goes with --mesh, found no --mesh\n");
  EXPECT_EQ(error({"--mesh", "seq=2", "--method", "dense"}),
            "tessera: [cli] --method must be worklist with --mesh, found "
            "dense\n");
  EXPECT_EQ(error({"--mesh", "seq=2", "--compile"}),
            "tessera: [cli] --compile goes without --mesh, whose program "
            "`tessera shard --compile` compiles, found both\n");
  EXPECT_EQ(error({"--mesh", "seq=2", "--lane", "mosaic", "--page-steps", "9"}),
            "tessera: [cli] --tiles-per-pass, --fetch-ahead, "
            "--keys-per-query, --page-steps, --query-chunk, --row-sum and "
            "--sink-telemetry go without --mesh, found --page-steps with "
            "it\n");
}

TEST_F(Fit, ASmallTileOfAnyLaneHasAReason) {
  for (const char* lane : {"xla", "mosaic"}) {
    const std::vector<std::string> flags = {
        "--mask", "causal", "--q-len", "4096", "--tile", "128", "--lane", lane};
    EXPECT_EQ(fit(flags), 2);
    EXPECT_EQ(err_,
              fmt::format("tessera: [{}] a tile below the granule of v6e, "
                          "256x256, must come with a lowering reason, found "
                          "none for 128x128, which pays 4 times its work\n",
                          lane));
    std::vector<std::string> with = flags;
    with.insert(with.end(), {"--lowering-reason", "documents of 90 tokens"});
    EXPECT_EQ(fit(with), 0) << err_;
  }
}

TEST_F(Fit, AChunkOfQueriesIsOfTheBackwardPass) {
  const Arguments flags = {"--mask", "causal", "--q-len",       "4096",
                           "--lane", "mosaic", "--query-chunk", "1024"};
  EXPECT_EQ(fit(flags), 2);
  EXPECT_EQ(err_,
            "tessera: [cli] --query-chunk goes with --backward, found it "
            "alone\n");
  Arguments with = flags;
  with.push_back("--backward");
  EXPECT_EQ(fit(with), 0) << err_;
}

TEST_F(Fit, SinkTelemetryIsOfLaneMosaic) {
  const Arguments flags = {"--mask", "causal", "--q-len", "4096",
                           "--sink-telemetry"};
  EXPECT_EQ(fit(flags), 2);
  EXPECT_NE(err_.find("--sink-telemetry and --numbers go with --lane mosaic, "
                      "found --sink-telemetry with xla"),
            std::string::npos)
      << err_;
  Arguments with = flags;
  with.insert(with.end(), {"--lane", "mosaic", "--backward"});
  EXPECT_EQ(fit(with), 0) << err_;
  EXPECT_NE(out_.find("\nsinks\n"), std::string::npos) << out_;
  with.push_back("--json");
  ASSERT_EQ(fit(with), 0) << err_;
  const json r = json::parse(out_);
  EXPECT_EQ(r["sinks"]["outputs"][1]["name"], "entropy");
  EXPECT_EQ(r["sinks"]["outputs"][1]["kind"], "output");
  EXPECT_LT(r["sinks"]["bytes"]["total"], r["forward"]["bytes"]["total"]);
  with.insert(with.end(), {"--mesh", "seq=2"});
  EXPECT_EQ(fit(with), 2);
  EXPECT_NE(err_.find("go without --mesh, found --sink-telemetry with it"),
            std::string::npos)
      << err_;
}

TEST_F(Fit, TheCompilersNumbersStandBesideOurs) {
  const auto plugin = tessera::testing::real_plugin("libtpu");
  if (tessera::testing::is_absent(plugin)) {
    GTEST_SKIP() << plugin.error().message;
  }
  ASSERT_EQ(fit({"--lane", "mosaic", "--mask", "causal", "--q-len", "4096",
                 "--backward", "--compile", "--json"}),
            0)
      << err_;
  const json r = json::parse(out_);
  for (const char* pass : {"forward", "backward"}) {
    const json& compiled = r[pass]["compiled"];
    EXPECT_EQ(compiled["argument"], r[pass]["bytes"]["argument"]);
    EXPECT_EQ(compiled["total"], r[pass]["bytes"]["total"]);
    EXPECT_GT(compiled["code"], 0);
  }
}

}  // namespace
}  // namespace tessera::cli
