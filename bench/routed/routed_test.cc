// bench/routed/routed_test.cc: `tessera-bench routed`: derived figures, the
// file for its peer, reading the peer's lines, and whole runs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "base/safetensors.h"
#include "bench/routed/peer.h"
#include "bench/routed/rows.h"
#include "cli/command.h"
#include "tests/program.h"

namespace tessera::bench {

using cli::kOk;

namespace {

using nlohmann::json;
using tessera::testing::Arguments;

RoutedTimes whole_of(double routing, double attention) {
  RoutedTimes t;
  t.routing = routing;
  t.plan = 1;
  t.prepare = 2;
  t.attention = attention;
  return t;
}

TEST(RoutedRows, RatiosAreOfTheMedianRun) {
  RoutedTable t;
  t.heads = 8;
  t.dense_heads = 2;
  t.dense_ms = {300, 100, 200};
  t.pairs = 10;
  t.causal_pairs = 100;
  t.exhaustive = {whole_of(7, 90), whole_of(9, 5000), whole_of(1, 1)};
  EXPECT_EQ(median_of(t.exhaustive).attention, 90);
  EXPECT_EQ(t.dense(), 800);  // four times two heads
  EXPECT_EQ(t.to_dense(), 8);
  EXPECT_EQ(t.routing_share(), 0.01);
  EXPECT_EQ(t.rate_to_dense(), 0.1 * 800 / 92);
  EXPECT_FALSE(t.to_peer());
  t.peer = RoutedPeerRun();
  RoutedPeer slow, fast, none;
  slow.ms = 500;
  fast.ms = 250;
  none.ms = 1;
  none.why = "it differs";
  t.peer->ways = {slow, none, fast};
  EXPECT_EQ(*t.to_peer(), 2.5);
  EXPECT_EQ(median_of({whole_of(1, 4), whole_of(1, 3)}).attention, 3);
}

TEST(RoutedRows, GrowthIsAPowerOfTheTokens) {
  RoutedGrowth g;
  const auto plan = [](const RoutedTimes& t) { return t.plan; };
  const auto pool = [](const RoutedTimes& t) { return t.stage[0]; };
  for (const int64_t n : {1000, 2000, 4000}) {
    const auto x = static_cast<double>(n);
    RoutedTimes t;
    t.plan = x * x;
    t.stage[0] = 1e-9 * x;  // too short to measure
    g.rows.push_back({n, false, t});
    t.plan = 3 * x;
    g.rows.push_back({n, true, t});
  }
  EXPECT_NEAR(*g.exponent(false, plan), 2, 1e-12);
  EXPECT_NEAR(*g.exponent(true, plan), 1, 1e-12);
  EXPECT_FALSE(g.exponent(false, pool));
  g.rows.resize(1);
  EXPECT_FALSE(g.exponent(false, plan));
  EXPECT_FALSE(g.exponent(true, plan));
}

TEST(RoutedPeer, LinesAreReadAndTheRestIsPassedOver) {
  json versions;
  const auto peers = parse_routed_lines(
      "a library says hello\n{\"versions\": {\"torch\": \"9\"}}\n[1]\n"
      "{\"way\": \"tiles\", \"ms\": 5, \"route_ms\": 2, \"attend_ms\": 3,"
      " \"runs\": 4, \"same_picks\": 1, \"error\": 1e-6}\n"
      "{\"way\": \"blocks\", \"ms\": 4, \"runs\": 1e300, \"why\": \"it "
      "differs\"}\n"
      "{\"way\": \"other\", \"ms\": \"fast\"}\n"
      "{\"way\": 7}\n{\"way\": \"cut sho",
      versions);
  ASSERT_EQ(peers.size(), 3u);
  EXPECT_EQ(versions["torch"], "9");
  EXPECT_TRUE(peers[0].measured());
  EXPECT_EQ(peers[0].runs, 4);
  EXPECT_EQ(peers[0].route_ms, 2);
  EXPECT_EQ(peers[0].attend_ms, 3);
  EXPECT_EQ(peers[0].same_picks, 1);
  EXPECT_FALSE(peers[1].measured());
  EXPECT_EQ(peers[1].runs, 0);
  EXPECT_EQ(peers[2].why, "its line has no time");
  EXPECT_EQ(best_of(peers)->way, "tiles");
  EXPECT_EQ(best_of({}), nullptr);
}

class BenchRouted : public tessera::testing::Program {
 protected:
  void SetUp() override {
    const char* was = std::getenv(kVariable);
    if (was) was_ = was;
    unsetenv(kVariable);
  }
  void TearDown() override {
    if (was_) setenv(kVariable, was_->c_str(), 1);
  }

  json run(const Arguments& more) {
    Arguments all = {"routed", "--json",     "--heads", "2",       "--threads",
                     "2",      "--head-dim", "16",      "--dtype", dtypes_};
    all.insert(all.end(), more.begin(), more.end());
    bench(all);
    return json::parse(out_, nullptr, false);
  }

  static constexpr const char* kVariable = "TESSERA_TORCH_PYTHON";
  std::optional<std::string> was_;
  std::string dtypes_ = "f32";
};

TEST_F(BenchRouted, HasEveryStageAndAProof) {
  const std::string report = file("routed.json");
  const json result = run(
      {"--tokens", "2048,4096", "--rounds", "2", "--density", "0.4", "--spread",
       "0.001", "--kv-heads", "1", "--dense-heads", "1", "-o", report});
  ASSERT_EQ(code_, kOk) << err_;
  EXPECT_EQ(result["bench"], "routed");
  EXPECT_TRUE(result["passed"]);
  EXPECT_TRUE(result["quiet"].is_boolean());
  EXPECT_EQ(json::parse(*read_file(report, 1 << 20)), result);
  ASSERT_EQ(result["tables"].size(), 2u);
  for (const json& t : result["tables"]) {
    const int64_t tokens = t["tokens"];
    const int64_t blocks = tokens / 256;
    EXPECT_EQ(t["tiles_causal"], 2 * blocks * (blocks + 1) / 2);
    EXPECT_EQ(t["tile_rows"], 2 * blocks);
    EXPECT_NEAR(t["density"], 0.4, 0.1);
    EXPECT_GT(t["tiles_full"], 0);
    EXPECT_EQ(t["pairs_causal"], tokens * (tokens + 1));
    EXPECT_LT(t["pairs"], t["pairs_causal"]);
    EXPECT_EQ(t["contracts"], 1);
    EXPECT_TRUE(t["check"]["passed"]);
    EXPECT_GT(t["check"]["max_ratio"], 0);
    EXPECT_TRUE(t["dense"]["scaled"]);
    EXPECT_EQ(t["dense"]["heads_timed"], 1);
    EXPECT_EQ(t["runs"].size(), 2u);
    EXPECT_FALSE(t.contains("peers"));
    const json& all = t["exhaustive"];
    double stages = 0;
    for (const auto& [name, ms] : all["stages_ms"].items()) {
      stages += ms.get<double>();
    }
    EXPECT_GT(all["stages_ms"]["score"], 0);
    EXPECT_EQ(all["stages_ms"]["coarse"], 0);
    EXPECT_GT(t["hierarchical"]["stages_ms"]["coarse"], 0);
    EXPECT_LE(stages, all["routing_ms"].get<double>() + 1e-6);
    const double whole =
        all["routing_ms"].get<double>() + all["plan_ms"].get<double>() +
        all["prepare_ms"].get<double>() + all["attention_ms"].get<double>();
    EXPECT_NEAR(all["whole_ms"], whole, 1e-6);
    EXPECT_NEAR(t["to_dense"], t["dense"]["ms"].get<double>() / whole, 1e-9);
    // There are only 16 groups of 8 blocks, so the recall is 1.
    EXPECT_EQ(t["recall"]["mean"], 1);
    EXPECT_EQ(t["recall"]["worst"], 1);
    EXPECT_EQ(t["reached"]["to_dense"], t["to_dense"] >= 5);
  }
  // Lengths from half the shortest one, doubled; exhaustive and hierarchical.
  const json& growth = result["growth"];
  EXPECT_EQ(growth["top"], result["tables"][0]["top"]);
  std::vector<int64_t> lengths;
  for (const json& row : growth["rows"]) lengths.push_back(row["tokens"]);
  EXPECT_EQ(lengths,
            (std::vector<int64_t>{1024, 1024, 2048, 2048, 4096, 4096}));
  EXPECT_TRUE(growth["exponents"]["exhaustive"].contains("all"));
}

TEST_F(BenchRouted, TopComesNearestToTheDensity) {
  const auto density = [&](const std::string& flag, const std::string& value) {
    const json result = run({"--tokens", "4096", "--rounds", "1", "--growth",
                             "off", flag, value, "--spread", "0.1"});
    EXPECT_EQ(code_, kOk) << err_;
    EXPECT_EQ(result["growth"]["rows"].size(), 0u);
    const json& t = result["tables"][0];
    return std::pair<int64_t, double>(t["top"], t["density"]);
  };
  for (const double wanted : {0.2, 0.5}) {
    const auto [top, found] = density("--density", std::to_string(wanted));
    ASSERT_GT(top, 1);
    for (const int64_t other : {top - 1, top + 1}) {
      const auto [same, more] = density("--top", std::to_string(other));
      EXPECT_EQ(same, other);
      EXPECT_GE(std::abs(more - wanted), std::abs(found - wanted)) << other;
    }
  }
  // At most all blocks are picked, and at least the own block.
  EXPECT_EQ(density("--density", "1").second, 1);
  EXPECT_EQ(density("--density", "0.001").first, 1);
}

TEST_F(BenchRouted, EveryQueryOfATileRowCanShareItsUnion) {
  dtypes_ = "bf16,f32";
  const json result = run({"--tokens", "1024", "--top", "2", "--meaning",
                           "union", "--growth", "off", "--rounds", "1"});
  ASSERT_EQ(code_, kOk) << err_;
  EXPECT_EQ(result["meaning"], "union");
  EXPECT_EQ(result["tables"][0]["dtype"], "bf16");
  EXPECT_GT(result["tables"][0]["exhaustive"]["stages_ms"]["expand"], 0);
  ASSERT_EQ(result["tables"].size(), 2u);
  EXPECT_EQ(result["tables"][1]["dtype"], "f32");
  EXPECT_TRUE(result["tables"][0]["check"]["passed"]);
  EXPECT_TRUE(result["tables"][1]["check"]["passed"]);
}

TEST_F(BenchRouted, WithoutAnInterpreterThePeerIsNotMeasured) {
  const json result = run({"--tokens", "512", "--growth", "off", "--top", "1",
                           "--rounds", "1", "--peers", "bench/peers"});
  ASSERT_EQ(code_, kOk) << err_;
  ASSERT_EQ(result["tables"][0]["peers"].size(), 1u);
  EXPECT_EQ(result["tables"][0]["peers"][0]["why"],
            "TESSERA_TORCH_PYTHON is not set");
  EXPECT_FALSE(result["tables"][0].contains("to_peer"));
}

// A shell script in place of PyTorch's, which keeps its input file.
TEST_F(BenchRouted, ThePeerIsHandedInputsAndSampledResults) {
  const std::string kept = file("kept.safetensors");
  std::ofstream(file("routed_torch.py"))
      << "cp \"$2\" '" << kept << "'\n"
      << "echo '{\"way\": \"tiles\", \"ms\": 1000000, \"runs\": 1}'\n"
      << "echo '{\"way\": \"blocks\", \"why\": \"it differs\"}'\n"
      << "echo all is lost >&2\nexit 3\n";
  setenv(kVariable, "/bin/sh", 1);
  const json result =
      run({"--tokens", "512", "--growth", "off", "--top", "2", "--rounds", "1",
           "--peers", folder_.path(), "--kv-heads", "1"});
  unsetenv(kVariable);
  ASSERT_EQ(code_, kOk) << err_;
  const json& t = result["tables"][0];
  ASSERT_EQ(t["peers"].size(), 3u);
  EXPECT_EQ(t["peers"][1]["why"], "it differs");
  EXPECT_EQ(t["peers"][2]["why"], "exit 3: 'all is lost'");
  EXPECT_GT(t["to_peer"], 0);
  const auto bytes = read_file(kept, 1 << 24);
  ASSERT_TRUE(bytes.ok());
  const auto file = parse_safetensors(*bytes);
  ASSERT_TRUE(file.ok());
  const auto shape = [&](const char* name) {
    return file->tensors.at(name).shape;
  };
  using Shape = std::vector<int64_t>;
  EXPECT_EQ(shape("q"), (Shape{1, 2, 512, 16}));
  EXPECT_EQ(shape("k"), (Shape{1, 1, 512, 16}));
  EXPECT_EQ(shape("v"), (Shape{1, 1, 512, 16}));
  EXPECT_EQ(shape("picks"), (Shape{2, 256, 2}));
  // Two blocks and two picks: the own block, and the first block if it is past.
  const auto queries =
      int32_values(file->tensors.at("queries"), "queries").value();
  const auto picks = int32_values(file->tensors.at("picks"), "picks").value();
  for (size_t h = 0; h < 2; ++h) {
    for (size_t i = 0; i < 256; ++i) {
      EXPECT_EQ(queries[i], static_cast<int32_t>(2 * i + 1));
      EXPECT_EQ(picks[(h * 256 + i) * 2], 0);
      EXPECT_EQ(picks[(h * 256 + i) * 2 + 1], queries[i] < 256 ? -1 : 1);
    }
  }
}

}  // namespace
}  // namespace tessera::bench
