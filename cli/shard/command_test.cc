// cli/shard/command_test.cc: what `tessera shard` prints.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "base/child.h"
#include "base/files.h"
#include "tests/plugins.h"
#include "tests/program.h"
#include "tests/spans.h"

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

// The specs and their fingerprint are those of the emitted program.
TEST_F(ShardCommand, TellsHowTheArraysOfTheProgramLie) {
  const std::string emitted = file("sharded.mlir");
  for (const char* lane : {"xla", "mosaic"}) {
    for (const bool backward : {false, true}) {
      std::vector<std::string> flags = {"shard",
                                        "--mask",
                                        "causal & documents",
                                        "--q-len",
                                        "4096",
                                        "--docs",
                                        "lognormal:mean=500,seed=1",
                                        "--tile",
                                        "256",
                                        "--heads",
                                        "4",
                                        "--kv-heads",
                                        "2",
                                        "--mesh",
                                        "seq=4",
                                        "--lane",
                                        lane,
                                        "--emit",
                                        emitted,
                                        "--json"};
      if (backward) flags.push_back("--backward");
      program(flags);
      ASSERT_EQ(code_, 0) << err_;
      const json out = json::parse(out_);
      program({"audit", emitted, "--json"});
      ASSERT_EQ(code_, 0) << err_;
      const json audit = json::parse(out_);
      EXPECT_EQ(out["fingerprint"], audit["fingerprint"]) << lane;
      EXPECT_EQ(out["specs"].size(),
                audit["arguments"].size() + audit["results"].size());
      std::set<std::string> names;
      for (const json& s : out["specs"]) names.insert(s["name"]);
      for (const char* name : {"q", "steps", backward ? "dk" : "lse"}) {
        EXPECT_EQ(names.count(name), 1U) << lane << " " << name;
      }
    }
  }
}

// Evenness is computed from the work of tiles.
TEST_F(ShardCommand, WeighsTilesByTheirClass) {
  std::vector<std::string> flags = {
      "shard",     "--mask",    "causal",    "--tile", "64",
      "--q-len",   "1024",      "--mesh",    "seq=2",  "--work",
      "partial=5", "--balance", "contiguous"};
  program(flags);
  EXPECT_EQ(code_, 0) << err_;
  EXPECT_NE(out_.find("; partial=5,full=1\n"), std::string::npos) << out_;
  flags.push_back("--json");
  program(flags);
  ASSERT_EQ(code_, 0) << err_;
  const json out = json::parse(out_);
  EXPECT_EQ(out["work"], "partial=5,full=1");
  // Each shard has eight rows, whose last tiles are partial.
  EXPECT_EQ(out["shards"][0]["work"], 8 * 5 + 28);
  EXPECT_EQ(out["shards"][1]["work"], 8 * 5 + 28 + 64);
  EXPECT_EQ(out["shards"][1]["steps"], 8 + 28 + 64);
  EXPECT_DOUBLE_EQ(out["work_max_over_mean"], 2 * 132.0 / 200);
  flags[flags.size() - 4] = "partial=0";
  program(flags);
  EXPECT_EQ(code_, 2);
  EXPECT_EQ(err_,
            "tessera: [shard] the work of a partial tile must be 1 to 1048576, "
            "found '0'\n");
}

// If shards may be less even, fewer bytes are sent.
TEST_F(ShardCommand, AimsAtTheEvennessThatIsAsked) {
  std::vector<std::string> flags = {"shard",
                                    "--mask",
                                    "causal & documents",
                                    "--docs",
                                    "lengths:600,200,224",
                                    "--tile",
                                    "16",
                                    "--q-len",
                                    "1024",
                                    "--mesh",
                                    "seq=2",
                                    "--json"};
  program(flags);
  ASSERT_EQ(code_, 0) << err_;
  const json even = json::parse(out_);
  EXPECT_EQ(even["evenness"], "work=1.05,tokens=1.02");
  EXPECT_LE(even["tokens_max_over_mean"], 1.02);
  EXPECT_GT(even["forward"]["needed_bytes"], 0);
  flags.insert(flags.end(), {"--evenness", "tokens=1.5,work=2"});
  program(flags);
  ASSERT_EQ(code_, 0) << err_;
  const json loose = json::parse(out_);
  EXPECT_EQ(loose["evenness"], "work=2,tokens=1.5");
  EXPECT_LT(loose["forward"]["needed_bytes"], even["forward"]["needed_bytes"]);
  flags.insert(flags.end(), {"--balance", "contiguous"});
  program(flags);
  EXPECT_EQ(code_, 2);
  EXPECT_EQ(err_,
            "tessera: [shard] evenness goes with a balance that seeks it, rows "
            "or tasks, found contiguous\n");
}

TEST_F(ShardCommand, ReportsARaggedExchange) {
  const std::vector<std::string> flags = {"shard",
                                          "--mask",
                                          "causal & documents",
                                          "--q-len",
                                          "8192",
                                          "--docs",
                                          "lognormal:mean=500,seed=1",
                                          "--mesh",
                                          "seq=8",
                                          "--exchange",
                                          "ragged"};
  program(flags);
  EXPECT_EQ(code_, 0) << err_;
  EXPECT_NE(out_.find("a ragged exchange"), std::string::npos) << out_;
  EXPECT_NE(out_.find(") with room for "), std::string::npos) << out_;
  std::vector<std::string> as_json = flags;
  as_json.push_back("--json");
  program(as_json);
  EXPECT_EQ(code_, 0) << err_;
  const json out = json::parse(out_);
  EXPECT_EQ(out["exchange"], "ragged");
  for (const char* way : {"forward", "backward"}) {
    const json& moved = out[way];
    EXPECT_EQ(moved["sent_bytes"], moved["needed_bytes"]);
    EXPECT_GT(moved["capacity_bytes"], moved["sent_bytes"]);
  }
}

// The output has the choice, which gives the same contract if it is requested.
TEST_F(ShardCommand, ChoosesAGatherWhereRoundsSendAsMuch) {
  const auto report = [&](const char* exchange) {
    const std::vector<std::string> flags = {
        "shard", "--mask",    "causal",     "--q-len",    "8192",   "--mesh",
        "seq=8", "--balance", "contiguous", "--exchange", exchange, "--json"};
    program(flags);
    EXPECT_EQ(code_, 0) << err_;
    return json::parse(out_);
  };
  const json chosen = report("auto");
  const json asked = report("gather");
  EXPECT_EQ(chosen["exchange"], "gather");
  EXPECT_EQ(chosen["contract"], asked["contract"]);
  for (const char* way : {"forward", "backward"}) {
    EXPECT_EQ(asked[way]["sent_bytes"], asked[way]["all_gather_bytes"]);
  }
  program({"shard", "--mask", "causal", "--q-len", "2048", "--mesh", "seq=4",
           "--exchange", "gather"});
  EXPECT_NE(out_.find("an all-gather of K and V"), std::string::npos) << out_;
  EXPECT_EQ(out_.find("K/V rounds"), std::string::npos) << out_;
}

// The reported time is that of the one planning.
TEST_F(ShardCommand, ReportsAsText) {
  const Trace trace;
  program({"shard", "--mask", "causal", "--q-len", "1024", "--mesh", "seq=2"});
  EXPECT_EQ(code_, 0) << err_;
  EXPECT_NE(out_.find("2 shards, rows"), std::string::npos) << out_;
  EXPECT_NE(out_.find(" us, once, memory cold\n"), std::string::npos) << out_;
  EXPECT_EQ(tessera::testing::spans_of(trace)["plan make_plan"], 1);
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

// The program has the TPU kernel on every device and sends the reported bytes.
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

// The gradient of the log-sum-exp travels with a moved task.
TEST_F(ShardCommand, CountsTheGradientOfTheLogSumExp) {
  int64_t sent[2] = {};
  for (const bool dlse : {false, true}) {
    std::vector<std::string> flags = {
        "shard",      "--mask",    "causal",
        "--q-len",    "2048",      "--tile",
        "64x64",      "--heads",   "4",
        "--head-dim", "32",        "--mesh",
        "seq=4",      "--balance", "tasks",
        "--dtype",    "f32",       "--json",
        "--backward", "--emit",    file("sharded.mlir")};
    if (dlse) flags.push_back("--dlse");
    program(flags);
    ASSERT_EQ(code_, 0) << err_;
    const json report = json::parse(out_);
    program({"audit", file("sharded.mlir"), "--json"});
    ASSERT_EQ(code_, 0) << err_;
    const json& backward = report["backward"];
    EXPECT_EQ(json::parse(out_)["sent_bytes"], backward["sent_bytes"]);
    EXPECT_EQ(backward["sent_bytes"], backward["capacity_bytes"]);
    sent[dlse ? 1 : 0] = backward["sent_bytes"];
  }
  // 4 bytes for each of 64 queries and 4 heads of 16 tiles.
  EXPECT_EQ(sent[0], 5259264);
  EXPECT_EQ(sent[1], 5275648);
}

TEST_F(ShardCommand, SaysWhatAChipNeeds) {
  const std::vector<std::string> flags = {
      "shard", "--mask", "causal", "--q-len",    "4096",  "--mesh",
      "seq=4", "--lane", "mosaic", "--backward", "--fit", "v6e"};
  ASSERT_EQ(program(flags, {"--json"}), 0) << err_;
  const json p = json::parse(out_)["program"];
  EXPECT_EQ(p["pass"], "backward");
  EXPECT_TRUE(p["target"].is_null());
  EXPECT_FALSE(p.contains("collectives"));
  const json& fit = p["fit"];
  EXPECT_EQ(fit["lane"], "mosaic");
  EXPECT_TRUE(fit["fits"]);
  EXPECT_GT(fit["residuals"], 0);
  bool traveled = false;
  for (const json& part : fit["forward"]["scratch"]) {
    traveled = traveled || part["name"] == "rounds of k";
  }
  EXPECT_TRUE(traveled) << fit["forward"]["scratch"];
  ASSERT_EQ(program(flags), 0) << err_;
  EXPECT_NE(out_.find("\non each chip\n"), std::string::npos) << out_;
  EXPECT_EQ(program({"shard", "--mask", "causal", "--q-len", "1048576",
                     "--heads", "64", "--kv-heads", "64", "--tile", "1024",
                     "--mesh", "head=2", "--fit", "v5e", "--backward"}),
            1);
  EXPECT_TRUE(
      err_.starts_with("tessera: [fit] the backward pass must fit the "
                       "15.75 GiB of a v5e device, found "))
      << err_;
  EXPECT_NE(err_.find("what would fit: devices along "), std::string::npos)
      << err_;
}

// The chunk is chosen if dQ of all queries does not fit, or is given by a flag.
TEST_F(ShardCommand, SaysTheChunkOfQueries) {
  const auto backward = [&](std::vector<std::string> more) {
    more.insert(more.end(), {"--mesh", "seq=8", "--tile", "512x512",
                             "--balance", "headtail", "--lane", "mosaic",
                             "--backward", "--fit", "v6e", "--json"});
    EXPECT_EQ(program({"shard", "--mask", "causal", "--q-len", "131072"}, more),
              0)
        << err_;
    return json::parse(out_);
  };
  const auto waits = [](const json& out) {
    const json parts = out["program"]["fit"]["backward"]["scratch"];
    return std::ranges::any_of(parts, [](const json& part) {
      return part["name"] == "columns between chunks";
    });
  };
  const json small = backward({"--heads", "8"});
  EXPECT_EQ(small["query_chunk"], 0);
  EXPECT_FALSE(waits(small));
  const json large = backward({"--heads", "64", "--kv-heads", "8"});
  EXPECT_GT(large["query_chunk"], 0);
  EXPECT_TRUE(waits(large));
  const json said = backward({"--heads", "8", "--query-chunk", "4096"});
  EXPECT_EQ(said["query_chunk"], 4096);
  EXPECT_TRUE(waits(said));
  EXPECT_EQ(said["contract"], small["contract"]);
}

// The granule matters only if a chip is given.
TEST_F(ShardCommand, ASmallTileOnAChipHasAReason) {
  const std::vector<std::string> flags = {"shard",   "--mask", "causal",
                                          "--q-len", "2048",   "--mesh",
                                          "seq=2",   "--tile", "128"};
  EXPECT_EQ(program(flags, {"--fit", "v6e"}), 2);
  EXPECT_NE(err_.find("[xla] a tile below the granule of v6e"),
            std::string::npos)
      << err_;
  EXPECT_EQ(program(flags, {"--fit", "v6e", "--lowering-reason", "few tokens"}),
            0)
      << err_;
  EXPECT_EQ(program(flags, {"--emit", file("sharded.mlir")}), 0) << err_;
  EXPECT_EQ(program(flags, {"--lowering-reason", "few tokens"}), 2);
  EXPECT_EQ(err_,
            "tessera: [cli] --lowering-reason goes with --lane mosaic, --fit "
            "or --compile, found none\n");
}

// The automatic exchange depends on whether the program is for TPUs.
TEST_F(ShardCommand, AnOpenExchangeIsRaggedForATpu) {
  const std::vector<std::string> flags = {
      "shard", "--mask", "causal", "--q-len", "2048",       "--mesh",
      "seq=2", "--tile", "256",    "--json",  "--exchange", "auto"};
  ASSERT_EQ(program(flags), 0) << err_;
  EXPECT_EQ(json::parse(out_)["exchange"], "gather");
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--target", "v6e"},
        {"--fit", "v6e"},
        {"--lane", "mosaic", "--emit", file("sharded.mlir")}}) {
    ASSERT_EQ(program(flags, more), 0) << err_;
    EXPECT_EQ(json::parse(out_)["exchange"], "ragged") << more.front();
  }
  const auto text = read_file(file("sharded.mlir"), 1 << 24);
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_NE(text->find("ragged_all_to_all"), std::string::npos);
}

// libtpu's schedule of a program for four chips sends, or has room for, the
// bytes that the audit of the program counts.
class ShardSchedule : public ShardCommand,
                      public ::testing::WithParamInterface<const char*> {};

TEST_P(ShardSchedule, SaysWhatRunsBesideCollectives) {
  const auto plugin = tessera::testing::real_plugin("libtpu");
  if (tessera::testing::is_absent(plugin)) {
    GTEST_SKIP() << plugin.error().message;
  }
  const std::vector<std::string> asked = {"--mask",     "causal & documents",
                                          "--q-len",    "2048",
                                          "--docs",     "lengths:1500,548",
                                          "--mesh",     "seq=4",
                                          "--balance",  "tasks",
                                          "--exchange", GetParam(),
                                          "--lane",     "mosaic",
                                          "--compile",  "v6e:2x2"};
  std::vector<std::string> command = {TESSERA_PROGRAM, "shard", "--json",
                                      "--emit", file("sharded.mlir")};
  command.insert(command.end(), asked.begin(), asked.end());
  const auto ran = run_child(command, {{"TMPDIR", folder_.path()}}, 300);
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  ASSERT_EQ(ran->exit_code, 0) << ran->err;
  const json p = json::parse(ran->out)["program"];
  EXPECT_EQ(p["target"], "v6e:2x2");
  const json& forward = p["fit"]["forward"];
  EXPECT_EQ(forward["compiled"]["argument"], forward["bytes"]["argument"]);
  EXPECT_EQ(forward["compiled"]["output"], forward["bytes"]["output"]);
  EXPECT_LE(forward["compiled"]["total"], forward["bytes"]["total"]);
  ASSERT_EQ(program({"audit", file("sharded.mlir"), "--json"}), 0) << err_;
  std::vector<int64_t> theirs, ours;
  for (const json& c : p["collectives"]) {
    if (GetParam() == std::string("ragged")) {
      EXPECT_EQ(c["op"], "ragged-all-to-all");
    } else {
      EXPECT_EQ(c["op"], "collective-permute");
      EXPECT_TRUE(c["asynchronous"]);
    }
    EXPECT_EQ(c["ops_between"] == 0, c["longest"].is_null());
    theirs.push_back(c["bytes"]);
  }
  const json audit = json::parse(out_);
  for (const json& c : audit["collectives"]) {
    ours.push_back(c["operand_bytes"]);
  }
  std::ranges::sort(theirs);
  std::ranges::sort(ours);
  EXPECT_FALSE(ours.empty());
  EXPECT_EQ(theirs, ours);
}

// The compiler overlaps the early call with incoming tiles and the last call
// with returning ones; if one op sends all tiles, calls overlap with that op.
TEST_P(ShardSchedule, CallsRunWhileTilesTravel) {
  const auto plugin = tessera::testing::real_plugin("libtpu");
  if (tessera::testing::is_absent(plugin)) {
    GTEST_SKIP() << plugin.error().message;
  }
  for (const bool backward : {false, true}) {
    std::vector<std::string> command = {
        TESSERA_PROGRAM, "shard",   "--json", "--mask",    "causal",
        "--q-len",       "8192",    "--mesh", "seq=4",     "--balance",
        "contiguous",    "--lane",  "mosaic", "--compile", "v6e:2x2",
        "--exchange",    GetParam()};
    if (backward) command.emplace_back("--backward");
    const auto ran = run_child(command, {{"TMPDIR", folder_.path()}}, 300);
    ASSERT_TRUE(ran.ok()) << ran.error().message;
    ASSERT_EQ(ran->exit_code, 0) << ran->err;
    tessera::testing::expect_listed("shard", ran->out);
    const json p = json::parse(ran->out)["program"];
    std::set<std::string> beside;
    for (const json& c : p["collectives"]) {
      EXPECT_TRUE(c["op"] == "collective-permute" || !c["kernels"].empty())
          << c;
      for (std::string kernel : c["kernels"]) {
        beside.insert(kernel.substr(0, kernel.find('.')));
      }
    }
    const std::set<std::string> due =
        backward ? std::set<std::string>{"tessera_backward_early",
                                         "tessera_backward_last"}
                 : std::set<std::string>{"tessera_forward_early"};
    EXPECT_EQ(beside, due) << p["collectives"].dump(1);
  }
}

INSTANTIATE_TEST_SUITE_P(Exchanges, ShardSchedule,
                         ::testing::Values("rounds", "ragged"));

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
  EXPECT_EQ(error({"--mesh", "seq=2", "--numbers", "any"}),
            "tessera: [cli] --numbers goes with --lane mosaic, found none\n");
  EXPECT_EQ(
      error({"--mesh", "seq=2", "--lane", "mosaic", "--emit", file("no.mlir"),
             "--numbers", "some"}),
      "tessera: [mosaic] --numbers must be finite or any, found 'some'\n");
  EXPECT_EQ(error({"--mesh", "seq=2", "--row-sum", "rounded"}),
            "tessera: [cli] --row-sum goes with --lane mosaic, found none\n");
  EXPECT_EQ(error({"--mesh", "seq=2", "--lane", "xla", "--row-sum", "exact",
                   "--emit", file("no.mlir")}),
            "tessera: [cli] --row-sum goes with --lane mosaic, found xla\n");
  EXPECT_EQ(
      error({"--mesh", "seq=2", "--lane", "mosaic", "--emit", file("no.mlir"),
             "--row-sum", "both"}),
      "tessera: [mosaic] --row-sum must be exact or rounded, found 'both'\n");
  EXPECT_EQ(
      error({"--mesh", "seq=2", "--lane", "mosaic", "--emit", file("no.mlir"),
             "--row-sum", "rounded", "--backward"}),
      "tessera: [cli] --row-sum rounded goes without --backward, found both\n");
  EXPECT_EQ(error({"--mesh", "seq=2", "--query-chunk", "512"}),
            "tessera: [cli] --query-chunk goes with --lane mosaic, found "
            "none\n");
  EXPECT_EQ(error({"--mesh", "seq=2", "--lane", "mosaic", "--fit", "v6e",
                   "--query-chunk", "512"}),
            "tessera: [cli] --query-chunk goes with --backward, found it "
            "alone\n");
  EXPECT_EQ(error({"--mesh", "seq=2", "--lane", "mosaic", "--fit", "v6e",
                   "--backward", "--tile", "512", "--query-chunk", "1000"}),
            "tessera: [mosaic] a chunk of queries must be of whole tiles of "
            "512, found 1000\n");
  EXPECT_EQ(error({"--mesh", "seq=2", "--lane", "mosaic"}),
            "tessera: [cli] --lane goes with --emit, --fit or --compile, found "
            "none\n");
  EXPECT_EQ(error({"--mesh", "seq=2", "--backward"}),
            "tessera: [cli] --backward goes with --emit, --fit or --compile, "
            "found none\n");
  EXPECT_EQ(error({"--mesh", "seq=2", "--sink-logits"}),
            "tessera: [cli] --sink-logits goes with --emit, --fit or "
            "--compile, found none\n");
  EXPECT_EQ(error({"--mesh", "seq=2", "--fit", "v6e", "--dlse"}),
            "tessera: [cli] --dlse goes with --backward, found none\n");
  EXPECT_EQ(error({"--mesh", "seq=2", "--fit", "v6e", "--compile", "v6e:2x2"}),
            "tessera: [cli] --compile says what fits too, found --fit beside "
            "it\n");
  EXPECT_EQ(error({"--mesh", "seq=2", "--fit", "v9"}),
            "tessera: [fit] a chip must be one of v4, v5e, v5p, v6e, tpu7x, "
            "found 'v9'\n");
  EXPECT_EQ(error({"--mesh", "head=3"}),
            "tessera: [shard] an axis must divide what it splits, found head=3 "
            "for 2 KV heads (uneven pads them)\n");
  EXPECT_EQ(error({"--mesh", "seq=2", "--dtype", "i8"}),
            "tessera: [cli] --dtype must be f32, bf16 or f16, found 'i8'\n");
}

}  // namespace
}  // namespace tessera::cli
