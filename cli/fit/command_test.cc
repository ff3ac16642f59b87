// cli/fit/command_test.cc: `tessera fit` from the command line to its answer.
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

TEST_F(Fit, ASmallTileOfAnyLaneHasAReason) {
  for (const char* lane : {"xla", "mosaic"}) {
    const std::vector<std::string> flags = {
        "--mask", "causal", "--q-len", "4096", "--tile", "128", "--lane", lane};
    EXPECT_EQ(fit(flags), 2);
    EXPECT_EQ(err_,
              fmt::format("tessera: [{}] a tile below the granule of v6e, "
                          "256x256, must come with a reason "
                          "(--lowering-reason TEXT), found none for 128x128, "
                          "which pays 4 times its work\n",
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
