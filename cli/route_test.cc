// cli/route_test.cc: `tessera route` and routed masks of `tessera run`.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/files.h"
#include "base/safetensors.h"
#include "cli/program.h"

namespace tessera::cli {
namespace {

using nlohmann::json;
using Arguments = std::vector<std::string>;

class RouteCommand : public ::testing::Test {
 protected:
  RouteCommand() { std::filesystem::create_directories(folder_); }
  ~RouteCommand() override { std::filesystem::remove_all(folder_); }

  std::string file(const char* name) const { return folder_ + "/" + name; }

  std::string said(const Arguments& arguments) {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    code_ = run_program(arguments);
    errors_ = ::testing::internal::GetCapturedStderr();
    return ::testing::internal::GetCapturedStdout();
  }
  json route(const Arguments& more) {
    Arguments a = {"route",         "--json",
                   "--q-len",       "256",
                   "--heads",       "4",
                   "--kv-heads",    "2",
                   "--head-dim",    "16",
                   "--mask",        "causal & routed(top=3, block=16)",
                   "--compression", "8",
                   "--stride",      "8",
                   "--kv-tile",     "64",
                   "--query-tile",  "32",
                   "--tile",        "32x16"};
    a.insert(a.end(), more.begin(), more.end());
    return json::parse(said(a));
  }
  std::string message(const Arguments& more) {
    const json e = route(more);
    return code_ == 2 ? e["error"]["message"].get<std::string>() : "";
  }
  json stage(const json& report, const char* name) {
    for (const json& s : report["stages"]) {
      if (s["name"] == name) return s;
    }
    return nullptr;
  }

  const std::string folder_ =
      ::testing::TempDir() + "tessera_route_" + std::to_string(getpid());
  int code_ = -1;
  std::string errors_;
};

TEST_F(RouteCommand, ToldStageByStage) {
  const json r = route({});
  ASSERT_EQ(code_, 0) << errors_;
  Arguments names;
  for (const json& s : r["stages"]) names.push_back(s["name"]);
  EXPECT_EQ(names, (Arguments{"pool", "window", "score", "top_n", "legality",
                              "union", "expand"}));
  EXPECT_EQ(stage(r, "pool")["pooled_keys"], 32);
  EXPECT_EQ(stage(r, "window")["routing_tiles"], 8 * 4);
  EXPECT_EQ(stage(r, "window")["routing_tiles_scored"],
            1 + 1 + 2 + 2 + 3 + 3 + 4 + 4);
  EXPECT_EQ(stage(r, "top_n")["heads"], 2);
  EXPECT_EQ(stage(r, "union")["tile_rows"], 16);
  EXPECT_EQ(r["phases"].size(), 3U);
  EXPECT_EQ(r["phases"][0]["gradient"], "stop_gradient");
  EXPECT_EQ(r["phases"][2]["gradient"], "differentiable");
  // A tile of the plan is a block of a tile row's union.
  EXPECT_EQ(r["plan"]["tiles"]["active"], stage(r, "union")["blocks"]);
}

TEST_F(RouteCommand, StopsAfterAStage) {
  for (const char* last :
       {"pool", "window", "score", "top_n", "legality", "union", "expand"}) {
    const json r = route({"--stage", last});
    ASSERT_EQ(code_, 0) << errors_;
    EXPECT_EQ(r["stages"].back()["name"], last);
    EXPECT_FALSE(r.contains("plan"));
  }
}

TEST_F(RouteCommand, PicturesPicksAndTiles) {
  const std::string text =
      said({"route", "--q-len", "512", "--heads", "1", "--head-dim", "8",
            "--mask", "causal & routed(2, 64)", "--compression", "64",
            "--query-tile", "64", "--tile", "64", "--width", "80", "--ascii"});
  EXPECT_EQ(code_, 0) << errors_;
  EXPECT_NE(text.find("picks and their union"), std::string::npos) << text;
  EXPECT_NE(text.find("tiles: causal & routed(2, 64)"), std::string::npos);
  EXPECT_NE(text.find("clustered: "), std::string::npos);
}

TEST_F(RouteCommand, PicksComeBackAsTheyWent) {
  const json first = route({"--outputs", file("picks")});
  ASSERT_EQ(code_, 0) << errors_;
  const json again =
      route({"--picks", file("picks"), "--outputs", file("again")});
  ASSERT_EQ(code_, 0) << errors_;
  EXPECT_EQ(*read_file(file("again"), 1 << 24),
            *read_file(file("picks"), 1 << 24));
  EXPECT_EQ(again["plan"]["tiles"], first["plan"]["tiles"]);
  EXPECT_EQ(again["stages"][0]["name"], "legality");
  EXPECT_EQ(message({"--picks", file("picks"), "--stage", "score"}),
            "[cli] given picks enter at legality, found --stage score before "
            "it");
  // The plan takes the same file.
  const json plan = json::parse(
      said({"plan", "--mask", "causal & routed(top=3, block=16)", "--q-len",
            "256", "--tile", "32x16", "--picks", file("picks"), "--json"}));
  EXPECT_EQ(code_, 0) << errors_;
  EXPECT_EQ(plan["phases"], first["phases"]);
}

TEST_F(RouteCommand, IllegalPicksAreToldOrRefused) {
  Safetensors f;
  std::vector<int32_t> picks(256, -1);
  picks[20] = 7;
  f.tensors["picks"] = {
      Dtype::i32, {1, 1, 256, 1}, bytes_of(std::span<const int32_t>(picks))};
  ASSERT_TRUE(write_file(file("bad"), *write_safetensors(f)));
  const json r = route({"--picks", file("bad")});
  ASSERT_EQ(code_, 0) << errors_;
  EXPECT_EQ(stage(r, "legality")["removed"]["future"], 1);
  EXPECT_NE(errors_.find("must not be from the future"), std::string::npos);
  EXPECT_EQ(message({"--picks", file("bad"), "--strict"}),
            "[route] a pick must not be from the future, found block 7 for "
            "query 20 of batch row 0, head 0");
  EXPECT_FALSE(std::filesystem::exists(file("none")));
}

TEST_F(RouteCommand, RefusesWhatDoesNotFit) {
  EXPECT_EQ(message({"--stage", "gather"}),
            "[cli] --stage must be one of pool, window, coarse, score, top_n, "
            "legality, union, expand, plan, found 'gather'");
  EXPECT_EQ(message({"--rule", "best"}),
            "[cli] --rule must be one of kv-head, query-head, query-tile, "
            "moba, found 'best'");
  EXPECT_EQ(message({"--max-union", "0"}),
            "[cli] --max-union must be from 1 to 1073741824, found 0");
  EXPECT_EQ(message({"--recall"}),
            "[cli] --recall is of --hierarchical routing, found it alone");
  EXPECT_EQ(message({"--stage", "pool", "--outputs", file("none")}),
            "[cli] --outputs holds legal picks, found --stage pool");
  EXPECT_FALSE(std::filesystem::exists(file("none")));
  EXPECT_EQ(message({"--max-union", "2"}).substr(0, 43),
            "[route] a tile row's union must be at most ");
}

TEST_F(RouteCommand, RecallOfEveryMetaIsOne) {
  const json all = route(
      {"--hierarchical", "--meta-ratio", "2", "--top-metas", "8", "--recall"});
  ASSERT_EQ(code_, 0) << errors_;
  EXPECT_EQ(all["recall"]["recall"], 1.0);
  const json few = route(
      {"--hierarchical", "--meta-ratio", "4", "--top-metas", "1", "--recall"});
  ASSERT_EQ(code_, 0) << errors_;
  EXPECT_LT(few["recall"]["recall"], 1.0);
}

// The run routes by its own q and k, and its answer is that of fp64.
TEST_F(RouteCommand, RunRoutesByItself) {
  for (const char* meaning : {"exact", "union"}) {
    const json r =
        json::parse(said({"run",           "--json",
                          "--mask",        "causal & routed(top=3, block=16)",
                          "--q-len",       "128",
                          "--heads",       "4",
                          "--kv-heads",    "2",
                          "--head-dim",    "16",
                          "--tile",        "32x16",
                          "--compression", "16",
                          "--stride",      "16",
                          "--query-tile",  "32",
                          "--meaning",     meaning,
                          "--backward",    "--check"}));
    ASSERT_EQ(code_, 0) << errors_;
    EXPECT_EQ(r["routing"]["settings"]["meaning"], meaning);
    EXPECT_EQ(r["routing"]["phases"].size(), 3U);
    EXPECT_EQ(r["routing"]["heads"], 2);
    EXPECT_TRUE(r["check"]["passed"].get<bool>());
  }
  said({"run", "--mask", "causal", "--q-len", "32", "--top-metas", "3"});
  EXPECT_EQ(code_, 2);
  EXPECT_EQ(errors_,
            "tessera: [cli] flags of the router go with a mask that names "
            "routed(top, block) and no picks, found them alone\n");
}

}  // namespace
}  // namespace tessera::cli
