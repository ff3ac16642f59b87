// cli/route/command_test.cc: `tessera route` and routed masks of `tessera run`.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/files.h"
#include "base/safetensors.h"
#include "tests/program.h"

namespace tessera::cli {
namespace {

using nlohmann::json;
using tessera::testing::Arguments;

class RouteCommand : public tessera::testing::Program {
 protected:
  std::string said(const Arguments& arguments) {
    program(arguments);
    return out_;
  }
  json route(const Arguments& more) {
    Arguments a = {"route",        "--json", "--q-len",
                   "256",          "--mask", "causal & routed(top=3, block=16)",
                   "--query-tile", "32",     "--tile",
                   "32x16"};
    if (std::find(more.begin(), more.end(), "--picks") == more.end()) {
      a.insert(a.end(),
               {"--heads", "4", "--kv-heads", "2", "--head-dim", "16",
                "--compression", "8", "--stride", "8", "--kv-tile", "64"});
    }
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
};

TEST_F(RouteCommand, ToldStageByStage) {
  const json r = route({});
  ASSERT_EQ(code_, 0) << err_;
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
    ASSERT_EQ(code_, 0) << err_;
    EXPECT_EQ(r["stages"].back()["name"], last);
    EXPECT_FALSE(r.contains("plan"));
  }
}

TEST_F(RouteCommand, PicturesPicksAndTiles) {
  const std::string text =
      said({"route", "--q-len", "512", "--heads", "1", "--head-dim", "8",
            "--mask", "causal & routed(2, 64)", "--compression", "64",
            "--query-tile", "64", "--tile", "64", "--width", "80", "--ascii"});
  EXPECT_EQ(code_, 0) << err_;
  EXPECT_NE(text.find("picks and their union"), std::string::npos) << text;
  EXPECT_NE(text.find("tiles: causal & routed(2, 64)"), std::string::npos);
  EXPECT_NE(text.find("clustered: "), std::string::npos);
}

TEST_F(RouteCommand, PicksComeBackAsTheyWent) {
  const json first = route({"--outputs", file("picks")});
  ASSERT_EQ(code_, 0) << err_;
  const json again =
      route({"--picks", file("picks"), "--outputs", file("again")});
  ASSERT_EQ(code_, 0) << err_;
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
  EXPECT_EQ(code_, 0) << err_;
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
  ASSERT_EQ(code_, 0) << err_;
  EXPECT_EQ(stage(r, "legality")["removed"]["future"], 1);
  EXPECT_NE(err_.find("must not be from the future"), std::string::npos);
  EXPECT_EQ(
      message({"--picks", file("bad"), "--strict", "--outputs", file("none")}),
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
            "[cli] --max-union must be from 1 to 1099511627776, found 0");
  EXPECT_EQ(message({"--recall"}),
            "[cli] --recall is of --hierarchical routing, found it alone");
  EXPECT_EQ(message({"--stage", "pool", "--outputs", file("none")}),
            "[cli] --outputs holds legal picks, found --stage pool");
  EXPECT_FALSE(std::filesystem::exists(file("none")));
  EXPECT_EQ(message({"--max-union", "2"}).substr(0, 43),
            "[route] a tile row's union must be at most ");
}

// An unused flag is an error, and a bad flag is found at the start even if it
// is used only at the end.
TEST_F(RouteCommand, RefusesWhatNobodyReads) {
  const json first = route({"--outputs", file("picks")});
  ASSERT_EQ(code_, 0) << err_;
  for (const auto& [flag, value] :
       {std::pair("--dtype", "zzz"), std::pair("--seed", "abc"),
        std::pair("--spread", "-1"), std::pair("--heads", "0")}) {
    EXPECT_EQ(
        message({"--picks", file("picks"), flag, value}),
        std::string("[cli] --picks says what ") + flag + " would, found both");
  }
  EXPECT_EQ(message({"--hierarchical", "--recall", "--stage", "score"}),
            "[cli] --recall compares legal picks, found --stage score");
  Safetensors f;
  std::vector<int32_t> metas(512, 0);
  const auto write = [&] {
    f.tensors["metas"] = {
        Dtype::i32, {1, 2, 256, 1}, bytes_of(std::span<const int32_t>(metas))};
    ASSERT_TRUE(write_file(file("metas"), *write_safetensors(f)));
  };
  write();
  const Arguments metas_of = {"--picks", file("metas"), "--hierarchical",
                              "--heads", "4",           "--kv-heads",
                              "2",       "--head-dim",  "16"};
  const auto with = [&](const Arguments& more) {
    Arguments a = metas_of;
    a.insert(a.end(), more.begin(), more.end());
    return message(a);
  };
  EXPECT_EQ(with({}), "");
  EXPECT_EQ(code_, 0) << out_;
  EXPECT_EQ(with({"--top-metas", "3"}),
            "[cli] given metas are kept as they are, found --top-metas for "
            "them");
  metas[20] = 2;
  write();
  EXPECT_EQ(with({"--stage", "pool"}),
            "[route] metas must be from -1 to 1, found 2 for query 20 of batch "
            "row 0, head 0");
  EXPECT_EQ(message({"--head", "2"}),
            "[cli] --head must be from 0 to 1, found 2");
  EXPECT_EQ(message({"--batch-row", "1"}),
            "[cli] --batch-row must be from 0 to 0, found 1");
  EXPECT_EQ(message({"--width", "x"}).substr(0, 21), "[cli] --width must be");
}

// Settings are checked before anything is drawn: these arrays would fit no
// memory.
TEST_F(RouteCommand, SettingsAreJudgedFirst) {
  for (const Arguments& command :
       {Arguments{"route"}, Arguments{"run"},
        Arguments{"plan", "--picks", "clustered:heads=64,dim=4096"}}) {
    program(command, {"--q-len", "1073741824", "--mask",
                      "causal & routed(2, 256)", "--kv-tile", "100"});
    EXPECT_EQ(
        err_,
        "tessera: [route] stride must divide kv_tile, found 64 for 100\n");
  }
}

// The memory check counts picks and pooled keys as well as arrays.
TEST_F(RouteCommand, RefusesWhatTheMemoryCannotHold) {
  const std::string rule =
      "clustered inputs and what routing makes of them must fit the memory "
      "that is free";
  const Arguments sizes = {"--mask",  "causal & routed(65536, 8)",
                           "--q-len", "1048576",
                           "--batch", "64"};
  for (const Arguments& command :
       {Arguments{"plan", "--picks", "clustered:dim=8"},
        Arguments{"route", "--heads", "1", "--head-dim", "8"},
        Arguments{"run", "--heads", "1", "--head-dim", "8"}}) {
    program(command, sizes);
    EXPECT_NE(code_, 0);
    const std::string want =
        command[0] == "run" ? "[run] the arrays must fit the memory" : rule;
    EXPECT_NE(err_.find(want), std::string::npos) << command[0] << err_;
  }
}

// Blocks with a small common divisor with 64 are pooled whole, not at every
// key.
TEST_F(RouteCommand, DefaultsFitTheBlock) {
  struct Case {
    const char *block, *more;
    int64_t compression, stride, kv_tile;
  };
  for (const Case& c :
       {Case{"256", "", 128, 64, 1024}, Case{"192", "", 128, 64, 1024},
        Case{"128", "", 128, 128, 1024}, Case{"64", "", 64, 64, 1024},
        Case{"127", "", 127, 127, 1016}, Case{"255", "", 255, 255, 1020},
        Case{"255", "51", 128, 51, 1020}, Case{"2048", "", 128, 64, 1024}}) {
    Arguments a = {
        "route",  "--q-len",
        "512",    "--heads",
        "1",      "--head-dim",
        "8",      "--stage",
        "pool",   "--json",
        "--mask", std::string("causal & routed(2, ") + c.block + ")"};
    if (*c.more) a.insert(a.end(), {"--stride", c.more});
    const json r = json::parse(said(a));
    ASSERT_EQ(code_, 0) << out_;
    EXPECT_EQ(r["settings"]["compression"], c.compression) << c.block;
    EXPECT_EQ(r["settings"]["stride"], c.stride) << c.block;
    EXPECT_EQ(r["settings"]["kv_tile"], c.kv_tile) << c.block;
  }
}

TEST_F(RouteCommand, RecallOfEveryMetaIsOne) {
  const json all = route(
      {"--hierarchical", "--meta-ratio", "2", "--top-metas", "8", "--recall"});
  ASSERT_EQ(code_, 0) << err_;
  EXPECT_EQ(all["recall"]["recall"], 1.0);
  const json few = route(
      {"--hierarchical", "--meta-ratio", "4", "--top-metas", "1", "--recall"});
  ASSERT_EQ(code_, 0) << err_;
  EXPECT_LT(few["recall"]["recall"], 1.0);
}

// A plan of drawn picks, its file and a run of the file record the meaning.
TEST_F(RouteCommand, PlansRecordTheMeaning) {
  for (const char* meaning : {"exact", "union"}) {
    const Arguments drawn = {"--mask",       "causal & routed(top=3, block=16)",
                             "--q-len",      "256",
                             "--tile",       "32x16",
                             "--picks",      "clustered:heads=2,dim=16,seed=3",
                             "--query-tile", "32",
                             "--meaning",    meaning,
                             "--max-union",  "12",
                             "--max-steps",  "512",
                             "--max-width",  "16",
                             "--json",       "-o",
                             file("plan")};
    Arguments plan_arguments = {"plan"};
    plan_arguments.insert(plan_arguments.end(), drawn.begin(), drawn.end());
    const json plan = json::parse(said(plan_arguments));
    ASSERT_EQ(code_, 0) << err_;
    EXPECT_EQ(plan["heads"], 2);
    EXPECT_EQ(plan["picks"]["meaning"], meaning);
    EXPECT_EQ(plan["picks"]["union"]["capacity"], 12);
    EXPECT_EQ(plan["contract_terms"]["picks"]["meaning"], meaning);
    EXPECT_EQ(plan["contract_terms"]["picks"]["union"], 12);
    ASSERT_EQ(plan["phases"].size(), 3U);
    EXPECT_EQ(plan["phases"][0]["gradient"], "stop_gradient");
    EXPECT_EQ(plan["phases"][2]["gradient"], "differentiable");

    const json again =
        json::parse(said({"plan", "--plan", file("plan"), "--json"}));
    ASSERT_EQ(code_, 0) << err_;
    for (const char* same : {"picks", "phases", "contract", "digest"}) {
      EXPECT_EQ(again[same], plan[same]) << same;
    }
    const json shown = json::parse(said({"show", file("plan"), "--json"}));
    ASSERT_EQ(code_, 0) << err_;
    EXPECT_EQ(shown["picks"], plan["picks"]);
    EXPECT_EQ(shown["phases"], plan["phases"]);
    const std::string text = said({"show", file("plan")});
    EXPECT_NE(text.find(std::string("picks  ") + meaning), std::string::npos);
    EXPECT_NE(text.find("attention (differentiable)"), std::string::npos);
    const json why =
        json::parse(said({"explain", "--plan", file("plan"), "--query", "40",
                          "--key", "3", "--json"}));
    ASSERT_EQ(code_, 0) << err_;
    EXPECT_EQ(why["meaning"], meaning);

    const json ran = json::parse(
        said({"run", "--plan", file("plan"), "--heads", "4", "--kv-heads", "2",
              "--head-dim", "16", "--backward", "--check", "--json"}));
    ASSERT_EQ(code_, 0) << err_;
    EXPECT_EQ(ran["routing"]["given"], true);
    EXPECT_EQ(ran["routing"]["settings"]["meaning"], meaning);
    EXPECT_EQ(ran["routing"]["union_capacity"], 12);
    EXPECT_EQ(ran["routing"]["phases"], plan["phases"]);
    EXPECT_TRUE(ran["check"]["passed"].get<bool>());
  }
}

TEST_F(RouteCommand, ExplainNamesPicksAndNoUnusedSlots) {
  Safetensors f;
  std::vector<int32_t> picks(size_t{256} * 2, -1);
  picks[40] = 1;  // of query 20
  f.tensors["picks"] = {
      Dtype::i32, {1, 1, 256, 2}, bytes_of(std::span<const int32_t>(picks))};
  ASSERT_TRUE(write_file(file("picks"), *write_safetensors(f)));
  const auto why = [&](const char* query) {
    return said({"explain", "--mask", "causal & routed(top=2, block=16)",
                 "--q-len", "256", "--picks", file("picks"), "--query", query,
                 "--key", "17"});
  };
  EXPECT_NE(why("20").find("key in block 1, query picked 1\n"),
            std::string::npos)
      << why("20") << err_;
  EXPECT_NE(why("21").find("query picked none\n"), std::string::npos)
      << why("21") << err_;
}

// `plan` and `run` check picks of a file as `route` does.
TEST_F(RouteCommand, GivenPicksAreJudgedEverywhere) {
  Safetensors f;
  std::vector<int32_t> picks(256, -1);
  picks[20] = 7;
  const auto write = [&](const char* name) {
    f.tensors["picks"] = {
        Dtype::i32, {1, 1, 256, 1}, bytes_of(std::span<const int32_t>(picks))};
    ASSERT_TRUE(write_file(file(name), *write_safetensors(f)));
  };
  write("future");
  picks[20] = 16;
  write("beyond");
  for (const char* command : {"plan", "run"}) {
    const Arguments arguments = {
        command,   "--mask",       "causal & routed(top=1, block=16)",
        "--q-len", "256",          "--picks",
        "",        "--query-tile", "32"};
    const auto with = [&](const char* name, const Arguments& more = {}) {
      Arguments a = arguments;
      a[6] = file(name);
      if (std::string(command) == "run") {
        a.insert(a.end(), {"--heads", "1", "--head-dim", "16"});
      }
      a.insert(a.end(), more.begin(), more.end());
      said(a);
      return err_;
    };
    EXPECT_NE(with("future").find("must not be from the future"),
              std::string::npos)
        << err_;
    EXPECT_EQ(code_, 0);
    EXPECT_EQ(with("future", {"--strict"}),
              "tessera: [route] a pick must not be from the future, found "
              "block 7 for query 20 of batch row 0, head 0\n");
    EXPECT_EQ(code_, 2);
    EXPECT_EQ(with("beyond"),
              "tessera: [route] picks must be from -1 to 15, found 16 for "
              "query 20 of batch row 0, head 0\n");
    if (std::string(command) == "run") {
      Safetensors three;
      const std::vector<int32_t> of(size_t{256} * 3, -1);
      three.tensors["picks"] = {
          Dtype::i32, {1, 3, 256, 1}, bytes_of(std::span<const int32_t>(of))};
      ASSERT_TRUE(write_file(file("three"), *write_safetensors(three)));
      Arguments a = arguments;
      a[6] = file("three");
      program(a, {"--heads", "6", "--head-dim", "16"});
      EXPECT_EQ(err_,
                "tessera: [route] picks must be of 1 head, the 6 KV heads or "
                "the 6 query heads, found 3 heads\n");
    }
    EXPECT_EQ(with("future", {"--rule", "moba"}),
              "tessera: [cli] given picks are not scored again, found --rule "
              "for them\n");
  }
}

// The run routes with its own q and k, and its result matches fp64.
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
    ASSERT_EQ(code_, 0) << err_;
    EXPECT_EQ(r["routing"]["settings"]["meaning"], meaning);
    EXPECT_EQ(r["routing"]["phases"].size(), 3U);
    EXPECT_EQ(r["routing"]["heads"], 2);
    EXPECT_TRUE(r["check"]["passed"].get<bool>());
  }
  said({"run", "--mask", "causal", "--q-len", "32", "--top-metas", "3"});
  EXPECT_EQ(code_, 2);
  EXPECT_EQ(err_,
            "tessera: [cli] flags of the router go with a mask that names "
            "routed(top, block), found them alone\n");
}

}  // namespace
}  // namespace tessera::cli
