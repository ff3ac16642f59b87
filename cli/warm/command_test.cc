// cli/warm/command_test.cc: after `tessera warm`, runs compile nothing.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/files.h"
#include "tests/plugins.h"
#include "tests/program.h"

namespace tessera::cli {
namespace {

using nlohmann::json;
using tessera::testing::Arguments;

class Warm : public tessera::testing::Program {
 protected:
  void SetUp() override {
    const auto plugin = tessera::testing::real_plugin("xla_cpu_pjrt");
    if (tessera::testing::is_absent(plugin)) {
      GTEST_SKIP() << plugin.error().message;
    }
  }
  Arguments shape() {
    return {"--mask",     "causal & documents",
            "--q-len",    "512",
            "--tile",     "32",
            "--heads",    "2",
            "--cache",    file("cache"),
            "--head-dim", "16"};
  }
  int run(const std::string& name, Arguments more) {
    Arguments all = shape();
    all.insert(all.end(), more.begin(), more.end());
    return program({name}, all);
  }
};

TEST_F(Warm, RunsAfterItCompileNothing) {
  const Arguments draw = {"--docs", "lognormal:mean=60", "--seeds",
                          "6",      "--backward",        "--dlse",
                          "--json"};
  ASSERT_EQ(run("warm", draw), 0) << err_;
  const json first = json::parse(out_);
  EXPECT_EQ(first["batches"], 6);
  EXPECT_GT(first["contracts"], 0);
  EXPECT_EQ(first["compiles"], 2 * first["contracts"].get<int64_t>());
  ASSERT_EQ(run("warm", draw), 0) << err_;
  const json second = json::parse(out_);
  EXPECT_EQ(second["compiles"], 0);
  EXPECT_EQ(second["disk_hits"], first["compiles"]);
  for (int seed = 0; seed < 6; ++seed) {
    ASSERT_EQ(
        run("run", {"--docs", "lognormal:mean=60,seed=" + std::to_string(seed),
                    "--lane", "xla", "--backward", "--json"}),
        0)
        << err_;
    EXPECT_EQ(json::parse(out_)["compiles"], 0) << out_;
  }
}

// A cache folder that cannot be written is reported.
TEST_F(Warm, AFolderThatCannotKeepIsAFailure) {
  const std::string none = "/proc/self/nowhere";
  Arguments all = shape();
  for (std::string& word : all) {
    if (word == file("cache")) word = none;
  }
  all.insert(all.end(), {"--docs", "lognormal:mean=60", "--json"});
  EXPECT_EQ(program({"warm"}, all), 1) << out_;
  const json out = json::parse(out_);
  EXPECT_EQ(out["compiles"], 1);
  ASSERT_FALSE(out["warnings"].empty());
  EXPECT_NE(err_.find("warning: "), std::string::npos) << err_;
  all.pop_back();
  EXPECT_EQ(program({"warm"}, all), 1) << out_;
  EXPECT_NE(out_.find(none + ", but what is warned of\n"), std::string::npos)
      << out_;
}

// Batches with one contract on one device may have several on a mesh. Every
// program that a run on the mesh needs is compiled.
TEST_F(Warm, RunsOnAMeshCompileNothing) {
  const auto plugin = tessera::testing::real_plugin("lammps_jax_pjrt_cpu");
  if (tessera::testing::is_absent(plugin)) {
    GTEST_SKIP() << plugin.error().message;
  }
  const Arguments mesh = {"--mesh", "seq=2", "--balance", "tasks",
                          "--backward"};
  const auto with = [&](Arguments more) {
    more.insert(more.end(), mesh.begin(), mesh.end());
    return more;
  };
  const Arguments draw = {
      "--docs", "lognormal:mean=60", "--seeds", "8", "--dlse", "--json"};
  ASSERT_EQ(run("warm", with(draw)), 0) << err_;
  const json first = json::parse(out_);
  Arguments one_device = draw;
  one_device.insert(one_device.end(), {"--backward"});
  ASSERT_EQ(run("warm", one_device), 0) << err_;
  // More contracts on the mesh than on one device.
  EXPECT_GT(first["contracts"], json::parse(out_)["contracts"]);
  EXPECT_EQ(first["compiles"], 2 * first["contracts"].get<int64_t>());
  for (int seed = 0; seed < 8; ++seed) {
    ASSERT_EQ(run("run", with({"--docs",
                               "lognormal:mean=60,seed=" + std::to_string(seed),
                               "--lane", "xla", "--json"})),
              0)
        << err_;
    const json receipt = json::parse(out_);
    EXPECT_EQ(receipt["shards"]["mesh"], "seq=2");
    EXPECT_EQ(receipt["compiles"], 0) << out_;
    EXPECT_EQ(receipt["cache_hits"]["disk"], 2) << out_;
  }
}

TEST_F(Warm, SinkTelemetryIsWarmedToo) {
  const Arguments batch = {"--docs", "lognormal:mean=60,seed=1",
                           "--sink-telemetry", "4", "--json"};
  ASSERT_EQ(run("warm", batch), 0) << err_;
  EXPECT_EQ(json::parse(out_)["compiles"], 2);
  Arguments as_run = batch;
  as_run.insert(as_run.end(), {"--lane", "xla"});
  ASSERT_EQ(run("run", as_run), 0) << err_;
  EXPECT_EQ(json::parse(out_)["compiles"], 0) << out_;
}

// The rules choose the cpu lane here, which compiles no programs.
TEST_F(Warm, TheRulesMayChooseTheLane) {
  const Arguments docs = {"--docs", "lognormal:mean=60,seed=1", "--lane",
                          "auto"};
  EXPECT_EQ(run("warm", docs), 2);
  EXPECT_EQ(err_,
            "tessera: [cli] --cache goes with --lane xla, mosaic, jax_bridge "
            "or splash, found --lane auto, which chose cpu\n");
  EXPECT_EQ(run("warm", {"--lane", "cpu"}), 2);
  EXPECT_EQ(err_,
            "tessera: [cli] --lane must be xla, mosaic or auto, found "
            "'cpu'\n");
}

TEST_F(Warm, RefusesWhatARunWould) {
  EXPECT_EQ(run("warm", {"--balance", "tasks"}), 2);
  EXPECT_EQ(err_,
            "tessera: [cli] --balance goes with --mesh, found no --mesh\n");
  EXPECT_EQ(run("warm", {"--sink-telemetry", "0"}), 2);
  EXPECT_TRUE(err_.starts_with("tessera: [cli] --sink-telemetry must be "))
      << err_;
  EXPECT_EQ(
      run("warm", {"--docs", "lognormal:mean=60,seed=1", "--sink-telemetry",
                   "4", "--mesh", "seq=2", "--plugin", "xla_cpu_pjrt"}),
      2);
  EXPECT_EQ(err_,
            "tessera: [dispatch] sink telemetry must be of one device, found "
            "a mesh of 2\n");
}

TEST_F(Warm, ALimitSaysWhatVaried) {
  ASSERT_TRUE(write_file(file("a.json"), R"({"q_len": 256})").ok());
  ASSERT_TRUE(write_file(file("b.json"), R"({"q_len": 512})").ok());
  const Arguments all = {
      "--mask",  "causal",       "--tile",  "32",           "--heads",
      "2",       "--head-dim",   "16",      "--cache",      file("cache"),
      "--specs", file("a.json"), "--specs", file("b.json"), "--max-compiles",
      "1"};
  EXPECT_EQ(program({"warm"}, all), 2);
  EXPECT_TRUE(err_.starts_with(
      "tessera: [cache] compiles must be at most 1, found one more for "
      "contract '"))
      << err_;
  EXPECT_NE(err_.find("(from the nearest known one differs: "),
            std::string::npos);
  EXPECT_NE(err_.find("q_len "), std::string::npos) << err_;
  EXPECT_NE(err_.find("steps "), std::string::npos) << err_;
}

}  // namespace
}  // namespace tessera::cli
