// cli/compile/command_test.cc: `tessera compile` as a user runs it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/files.h"
#include "base/safetensors.h"
#include "tests/plugins.h"
#include "tests/program.h"

namespace tessera::cli {
namespace {

using nlohmann::json;
using tessera::testing::Arguments;

constexpr const char* kProgram = "examples/product.mlir";

class Compile : public tessera::testing::Program {
 protected:
  int compile(const Arguments& more) { return program({"compile"}, more); }

  // A file with one tensor of picks; the first pick of each query is block 0.
  std::string picks(const std::string& name, const std::vector<int64_t>& shape,
                    const std::string& tensor = "picks") {
    int64_t count = 1;
    for (const int64_t n : shape) count *= n;
    std::vector<int32_t> blocks(static_cast<size_t>(count), -1);
    for (int64_t at = 0; at < count; at += shape.back()) {
      blocks[static_cast<size_t>(at)] = 0;
    }
    Safetensors f;
    f.tensors[tensor] = {Dtype::i32, shape,
                         bytes_of(std::span<const int32_t>(blocks))};
    EXPECT_TRUE(write_file(file(name), *write_safetensors(f)));
    return file(name);
  }
  Arguments of_picks(const std::string& mask, const std::string& source) {
    return {"--mask",     mask,
            "--q-len",    "1024",
            "--tile",     "256",
            "--picks",    source,
            "--heads",    "4",
            "--kv-heads", "2",
            "--target",   "v6e",
            "--json",     "--no-compile",
            "--emit",     file("kernel.mlir")};
  }
};

class CompileTpu : public Compile {
 protected:
  void SetUp() override {
    const auto plugin = tessera::testing::real_plugin("libtpu");
    if (tessera::testing::is_absent(plugin)) {
      GTEST_SKIP() << plugin.error().message;
    }
  }
};

// The kernel that compile makes has the arrays that export makes.
TEST_F(Compile, PagesAreToldWhereTheyAreAsked) {
  const Arguments request = {"--mask", "causal", "--q-len", "2048"};
  Arguments asked = request;
  asked.insert(asked.end(), {"--page-steps", "64"});
  for (const bool paged : {false, true}) {
    Arguments kernel = paged ? asked : request;
    kernel.insert(kernel.end(), {"--target", "v6e", "--no-compile", "--json",
                                 "--emit", file("kernel.mlir")});
    ASSERT_EQ(compile(kernel), 0) << err_;
    const json told = json::parse(out_)["kernel"];
    EXPECT_EQ(told["page"], paged ? 1024 : 0);
    Arguments arrays = paged ? asked : request;
    arrays.insert(arrays.end(), {"--layout", "mosaic", "--json", "-o",
                                 file("arrays.safetensors")});
    ASSERT_EQ(program({"export"}, arrays), 0) << err_;
    EXPECT_EQ(json::parse(out_)["arrays"]["steps"]["shape"],
              json::array({told["steps"]}));
  }
}

// Each pick head has a list of its own.
TEST_F(Compile, PicksOfASavedPlanHaveTheirHeadsAndMeaning) {
  for (const char* meaning : {"exact", "union"}) {
    ASSERT_EQ(program({"plan", "--mask", "causal & routed(top=2, block=128)",
                       "--q-len", "1024", "--tile", "256", "--picks",
                       "clustered:heads=4,kv_heads=2", "--meaning", meaning,
                       "--json", "-o", file("plan")}),
              0)
        << err_;
    const json plan = json::parse(out_)["contract_terms"];
    ASSERT_EQ(compile({"--plan", file("plan"), "--heads", "4", "--kv-heads",
                       "2", "--target", "v6e", "--no-compile", "--json",
                       "--emit", file("kernel.mlir")}),
              0)
        << err_;
    const json told = json::parse(out_)["kernel"];
    json terms = told["plan_contract_terms"];
    EXPECT_EQ(terms["heads"], 2);
    EXPECT_EQ(terms["heads"], plan["heads"]);
    EXPECT_EQ(terms["picks"]["meaning"], meaning);
    // The kernel's union has room for those of all batches.
    terms["picks"]["union"] = plan["picks"]["union"];
    EXPECT_EQ(terms["picks"], plan["picks"]);
    ASSERT_EQ(
        program({"export", "--plan", file("plan"), "--heads", "4", "--layout",
                 "mosaic", "--json", "-o", file("arrays.safetensors")}),
        0)
        << err_;
    EXPECT_EQ(json::parse(out_)["arrays"]["steps"]["shape"],
              json::array({told["steps"]}));
  }
}

// Picks of --picks have the same heads and meaning, and so the same kernel.
TEST_F(Compile, SoHavePicksThatAreGiven) {
  struct Source {
    const char* mask;
    std::string picks;
    int64_t heads;
  };
  constexpr const char* kRouted = "causal & routed(top=2, block=128)";
  const std::string of_two = picks("two", {1, 2, 1024, 2});
  const std::string of_one = picks("one", {1, 1, 1024, 3});
  const std::string of_tiles = picks("tiles", {1, 4, 4, 2}, "tile_picks");
  const std::vector<Source> sources = {
      {"causal & blocks(128)", of_two, 2},
      {"causal & blocks(128)", of_one, 1},
      {kRouted, of_two, 2},
      {kRouted, of_tiles, 4},
      {kRouted, "clustered:heads=4,kv_heads=2", 2}};
  for (const Source& source : sources) {
    const std::string name = source.mask + (" of " + source.picks);
    ASSERT_EQ(compile(of_picks(source.mask, source.picks)), 0) << err_;
    const json told = json::parse(out_)["kernel"];
    EXPECT_EQ(told["plan_contract_terms"]["heads"], source.heads) << name;
    ASSERT_EQ(
        program({"plan", "--mask", source.mask, "--q-len", "1024", "--tile",
                 "256", "--picks", source.picks, "-o", file("plan")}),
        0)
        << err_;
    ASSERT_EQ(compile({"--plan", file("plan"), "--heads", "4", "--kv-heads",
                       "2", "--target", "v6e", "--no-compile", "--json",
                       "--emit", file("kernel.mlir")}),
              0)
        << err_;
    EXPECT_EQ(told["contract"], json::parse(out_)["kernel"]["contract"])
        << name;
    ASSERT_EQ(
        program({"export", "--mask", source.mask, "--q-len", "1024", "--tile",
                 "256", "--picks", source.picks, "--heads", "4", "--layout",
                 "mosaic", "--json", "-o", file("arrays.safetensors")}),
        0)
        << err_;
    EXPECT_EQ(json::parse(out_)["arrays"]["range"]["shape"],
              json::array({source.heads + 1}))
        << name;
  }
}

// A mask that names no picks leaves them out, as in a plan.
TEST_F(Compile, PicksThatNoKernelHasAreRefusedOrLeftOut) {
  const auto key = [&](Arguments asked) {
    EXPECT_EQ(compile(asked), 0) << err_;
    return json::parse(out_)["kernel"]["contract"];
  };
  const Arguments unnamed = of_picks("causal", picks("two", {1, 2, 1024, 2}));
  Arguments without = unnamed;
  const auto flag = std::find(without.begin(), without.end(), "--picks");
  without.erase(flag, flag + 2);
  EXPECT_EQ(key(unnamed), key(without));

  const auto refused = [&](const std::string& mask, const std::string& source) {
    EXPECT_EQ(compile(of_picks(mask, source)), 2) << mask << ", " << source;
    return json::parse(out_)["error"]["message"].get<std::string>();
  };
  constexpr const char* kRouted = "routed(top=2, block=128)";
  const std::string absent = file("absent");
  for (const char* mask : {"causal", "blocks(128)", kRouted}) {
    EXPECT_EQ(refused(mask, absent),
              "[file] input must exist, found no file for '" + absent + "'");
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{1, 2, 512, 2},
          {2, 2, 1024, 2},
          {2, 1024, 2},
          {1, 0, 1024, 2},
          {1, 2, 1024, 0}}) {
      EXPECT_TRUE(refused(mask, picks("wrong", shape))
                      .starts_with("[picks] tensor picks must have shape [1, "
                                   "heads, 1024, k], found ["))
          << out_;
    }
  }
  EXPECT_EQ(refused("blocks(128)", picks("three", {1, 3, 1024, 2})),
            "[mosaic] heads must be a multiple of the plan's, found 4 for 3");
  EXPECT_EQ(refused("blocks(128)", "clustered"),
            "[cli] --picks clustered goes with a mask that names routed(top, "
            "block), found blocks(128)");
  EXPECT_TRUE(
      refused(kRouted, picks("metas", {1, 2, 1024, 2}, "metas"))
          .starts_with("[cli] metas enter before their blocks are scored"))
      << out_;
}

// `compile` and `export` take the same row of the table and report it alike.
TEST_F(Compile, ItsTileIsTheOneThatExportTakes) {
  const std::vector<Arguments> requests = {
      {"--mask", "causal", "--q-len", "32768"},
      {"--mask", "causal", "--q-len", "32768", "--heads", "1"},
      {"--mask", "causal", "--q-len", "32768", "--numbers", "any"},
      {"--mask", "causal & documents", "--q-len", "8192", "--docs",
       "lengths:8192"},
      {"--mask", "causal & documents", "--q-len", "8192", "--docs",
       "lengths:8192", "--keys-per-query", "4096"}};
  std::vector<std::string> words;
  for (const Arguments& request : requests) {
    for (const bool backward : {false, true}) {
      Arguments asked = request;
      asked.emplace_back("--json");
      if (backward) asked.emplace_back("--backward");
      Arguments kernel = asked;
      kernel.insert(kernel.end(), {"--target", "v6e", "--no-compile", "--emit",
                                   file("kernel.mlir")});
      ASSERT_EQ(compile(kernel), 0) << err_;
      const json told = json::parse(out_)["kernel"];
      Arguments arrays = asked;
      arrays.insert(arrays.end(),
                    {"--layout", "mosaic", "-o", file("arrays.safetensors")});
      ASSERT_EQ(program({"export"}, arrays), 0) << err_;
      const json made = json::parse(out_);
      EXPECT_EQ(made["chosen_by"], told["chosen_by"]);
      words.push_back(told["chosen_by"]);
      // For a mask without facts the room is exactly that of the plan.
      if (request[1] != "causal") continue;
      EXPECT_EQ(made["arrays"]["steps"]["shape"], json::array({told["steps"]}));
    }
  }
  const std::string row = "the table, for 16384 keys a query";
  const std::string borrowed = "; borrowed, for its rows are of ";
  const std::string unsaid =
      "the default: nobody said how many keys a query sees";
  EXPECT_EQ(words,
            (std::vector<std::string>{
                row, row, "the table of heads alone, for 16384 keys a query",
                row + borrowed + "8 heads", row + borrowed + "finite numbers",
                row + borrowed + "finite numbers", unsaid, unsaid,
                "the table, for 4096 keys a query",
                "the table, for 4096 keys a query"}));
}

TEST_F(Compile, SoAreChunksOfQueries) {
  const Arguments asked = {"--mask",     "causal",        "--q-len", "4096",
                           "--backward", "--query-chunk", "1024"};
  Arguments kernel = asked;
  kernel.insert(kernel.end(), {"--target", "v6e", "--no-compile", "--emit",
                               file("kernel.mlir")});
  ASSERT_EQ(compile(kernel), 0) << err_;
  EXPECT_NE(out_.find("4096 queries in chunks of 1024, 4096 keys"),
            std::string::npos)
      << out_;
  kernel.push_back("--json");
  ASSERT_EQ(compile(kernel), 0) << err_;
  const json told = json::parse(out_)["kernel"];
  EXPECT_EQ(told["query_chunk"], 1024);
  EXPECT_EQ(told["contract_terms"]["parameters"]["query_chunk"], 1024);
  Arguments arrays = asked;
  arrays.insert(arrays.end(), {"--layout", "mosaic", "--json", "-o",
                               file("arrays.safetensors")});
  ASSERT_EQ(program({"export"}, arrays), 0) << err_;
  const json shapes = json::parse(out_)["arrays"];
  EXPECT_EQ(shapes["steps"]["shape"], json::array({told["steps"]}));
  EXPECT_EQ(shapes["range"]["shape"], json::array({4 + 1 + 4 * 4}));
}

TEST_F(CompileTpu, SaysWhatItMadeAndSavesIt) {
  ASSERT_EQ(compile({kProgram, "--target", "v6e:1x1", "-o", file("a")}), 0)
      << err_;
  EXPECT_EQ(err_, "");
  EXPECT_TRUE(
      out_.starts_with("compiled    product for v6e:1x1 (1 x TPU v6 lite), "))
      << out_;
  EXPECT_NE(out_.find("\narguments           589824 bytes\n"),
            std::string::npos)
      << out_;
  ASSERT_EQ(
      compile({kProgram, "--target", "v6e:1x1", "--json", "-o", file("b")}), 0);
  const json r = json::parse(out_);
  EXPECT_EQ(r["name"], "product");
  EXPECT_EQ(r["target"], "v6e:1x1");
  EXPECT_EQ(r["devices"]["count"], 1);
  EXPECT_EQ(r["outputs"], 1);
  EXPECT_EQ(r["bytes"]["argument"],
            2 * (512 * 256 + 256 * 128) + 4 * 512 * 128);
  EXPECT_EQ(r["bytes"]["output"], 4 * 512 * 128);
  EXPECT_GT(r["bytes"]["code"], 0);
  EXPECT_GT(r["compile_ms"], 0.0);
  EXPECT_GE(r["cost"]["flops"], 2.0 * 512 * 256 * 128);
  EXPECT_EQ(r["out"], file("b"));
  const auto a = read_file(file("a"), 1 << 26);
  const auto b = read_file(file("b"), 1 << 26);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(static_cast<int64_t>(b->size()), r["bytes"]["serialized"]);
  EXPECT_GT(a->size(), 1000u);
}

TEST_F(CompileTpu, WhatFailsWritesNothingAndIsOneLine) {
  ASSERT_TRUE(write_file(file("broken"), "module {").ok());
  for (const Arguments& bad :
       {Arguments{file("broken"), "--target", "v6e:1x1"},
        {"tests/golden/mosaic/wrong_type.mlir", "--target", "v6e:1x1"},
        {"tests/golden/mosaic/scalar_memory.mlir", "--target", "v6e:1x1"},
        {kProgram, "--target", "v9e:1x1"},
        {kProgram, "--target", "v6e:1x1", "--plugin", "libgpu"},
        {kProgram, "--target", "v6e:1x1", "--plugin", file("none.so")},
        {kProgram, "--target", "v6e:1x1", "--plugin", file("broken")}}) {
    Arguments all = bad;
    all.insert(all.end(), {"-o", file("out"), "--json"});
    EXPECT_EQ(compile(all), 2);
    EXPECT_TRUE(err_.starts_with("tessera: [pjrt] ")) << err_;
    EXPECT_EQ(std::count(err_.begin(), err_.end(), '\n'), 1) << err_;
    EXPECT_EQ(
        "tessera: " + json::parse(out_)["error"]["message"].get<std::string>() +
            "\n",
        err_);
    EXPECT_FALSE(std::filesystem::exists(file("out")));
  }
}

TEST_F(Compile, WhatHasNoRoomIsNotCompiled) {
  EXPECT_EQ(compile({"--mask", "causal", "--q-len", "131072", "--heads", "512",
                     "--target", "v5e:2x2", "-o", file("out")}),
            2);
  EXPECT_TRUE(
      err_.starts_with("tessera: [fit] the forward pass must fit the 15.75 GiB "
                       "of a v5e device, found 64.2"))
      << err_;
  EXPECT_NE(err_.find("what would fit: q_len and kv_len "), err_.npos) << err_;
  EXPECT_FALSE(std::filesystem::exists(file("out")));
}

TEST_F(Compile, PathsAreCheckedBeforeAnyPluginLoads) {
  EXPECT_EQ(compile({file("none"), "--target", "v6e:1x1"}), 2);
  EXPECT_EQ(err_, "tessera: [file] input must exist, found no file for '" +
                      file("none") + "'\n");
  EXPECT_EQ(compile({kProgram, "--target", "v6e:1x1", "-o", file("x/y")}), 2);
  EXPECT_TRUE(
      err_.starts_with("tessera: [file] output must lie in a directory "
                       "that exists, found none"))
      << err_;
  ASSERT_TRUE(write_file(file("empty"), "").ok());
  EXPECT_EQ(compile({file("empty"), "--target", "v6e:1x1"}), 2);
  EXPECT_EQ(err_,
            "tessera: [compile] a program must hold a module, found none in '" +
                file("empty") + "'\n");
}

// The error says whether the build lacks the header or the machine the package.
TEST_F(Compile, AnAbsentPluginSaysHowToGetIt) {
  const char* before = std::getenv("TESSERA_PYTHON");
  const std::string kept = before ? before : "";
  setenv("TESSERA_PYTHON", "/no/such/python", 1);
  EXPECT_EQ(compile({kProgram, "--target", "v6e:1x1"}), 2);
  before ? setenv("TESSERA_PYTHON", kept.c_str(), 1)
         : unsetenv("TESSERA_PYTHON");
  EXPECT_TRUE(pjrt::check_available()
                  ? err_.find("'/no/such/python': exit 127") != err_.npos
                  : err_.find("make tpu") != err_.npos)
      << err_;
}

}  // namespace
}  // namespace tessera::cli
