// cli/explain/command_test.cc: `tessera explain`, for a pair and for memory.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/program.h"

namespace tessera::cli {
namespace {

using nlohmann::json;
using tessera::testing::Arguments;

class Explain : public tessera::testing::Program {
 protected:
  int tessera(const char* command, const Arguments& more) {
    return program({command}, more);
  }
};

const Arguments kCall = {
    "--mask", "causal & documents", "--q-len", "4096",   "--heads",
    "8",      "--target",           "v5e",     "--json", "--backward"};

Arguments with(Arguments all, const Arguments& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST_F(Explain, MemoryIsWhatFitSays) {
  for (const char* lane : {"xla", "mosaic"}) {
    Arguments call = with(kCall, {"--lane", lane});
    if (lane[0] == 'm') call[7] = "v6e";  // a chip that has kernels
    ASSERT_EQ(tessera("fit", call), 0) << err_;
    const json fit = json::parse(out_);
    ASSERT_EQ(tessera("explain", with(call, {"--memory"})), 0) << err_;
    EXPECT_EQ(json::parse(out_), json({{"memory", fit}}));
  }
}

TEST_F(Explain, AFactInVainIsWarnedOf) {
  ASSERT_EQ(tessera("explain", {"--mask", "causal", "--q-len", "512", "--docs",
                                "lognormal", "--query", "3"}),
            0)
      << err_;
  EXPECT_NE(err_.find("a fact should be named by a mask, found doc_ids unused"),
            std::string::npos)
      << err_;
}

TEST_F(Explain, MemoryStandsBesideAPair) {
  const Arguments pair = {"--docs", "lengths:4096", "--query",
                          "9",      "--key",        "4"};
  ASSERT_EQ(tessera("explain", with(with(kCall, pair), {"--memory"})), 0)
      << err_;
  const json both = json::parse(out_);
  EXPECT_TRUE(both["legal"]);
  EXPECT_EQ(both["memory"]["chip"]["name"], "v5e");
  ASSERT_EQ(tessera("explain", {"--mask", "causal", "--q-len", "64", "--query",
                                "9", "--memory"}),
            0)
      << err_;
  EXPECT_TRUE(out_.starts_with("query 9 (position 9) sees 10 of 64 keys\n"))
      << out_;
  EXPECT_NE(out_.find("\nlane        xla, worklist on v6e, tile 256x256\n"),
            std::string::npos)
      << out_;
}

TEST_F(Explain, WhatDoesNotFitIsSaidAsFitSaysIt) {
  const Arguments call = {"--mask",   "causal", "--q-len",   "1048576",
                          "--tile",   "512",    "--heads",   "64",
                          "--target", "v5e",    "--backward"};
  EXPECT_EQ(tessera("fit", call), 1);
  const std::string due = err_;
  EXPECT_NE(due, "");
  EXPECT_EQ(tessera("explain", with(call, {"--memory"})), 1);
  EXPECT_EQ(err_, due);
}

}  // namespace
}  // namespace tessera::cli
