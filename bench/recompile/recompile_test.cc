// bench/recompile/recompile_test.cc: the batches of `tessera-bench recompile`,
// its counts on a real plugin, and reading the peer's lines.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "bench/recompile/kernels.h"
#include "bench/recompile/peer.h"
#include "bench/recompile/ragged_batches.h"
#include "bench/recompile/settings.h"
#include "cli/command.h"
#include "plan/make_plan.h"
#include "tessera/batch.h"
#include "tests/plugins.h"
#include "tests/program.h"

namespace tessera::bench {

using cli::kOk;
using cli::kRefused;

namespace {

using nlohmann::json;
using tessera::testing::Arguments;

TEST(RaggedBatches, NoTwoAreAlikeAndThreeContractsServeAll) {
  const RaggedSizes sizes;
  std::set<std::string> contracts;
  std::set<int64_t> lengths, windows;
  std::set<std::vector<int32_t>> ids;
  for (int64_t i = 0; i < 200; ++i) {
    const RaggedBatch b = ragged_batch(sizes, 0, i);
    const auto plan = plan::make_plan(b.request, b.facts());
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    const auto contract =
        make_contract(*BorrowedBatch::make(b.request, b.facts()));
    ASSERT_TRUE(contract.ok()) << contract.error().message;
    contracts.insert(contract->key);
    // The program compiled before the batch is known is the one that it needs.
    EXPECT_EQ(make_ceiling_contract(b.request, b.facts())->key, contract->key);
    lengths.insert(b.length());
    windows.insert(b.window);
    ids.insert(b.ids);
    EXPECT_GT(plan->legal_pairs[0], 0);
    for (const int32_t count : b.counts) {
      EXPECT_GE(count, b.length() * 3 / 4);
      EXPECT_LE(count, b.length());
    }
  }
  EXPECT_EQ(contracts.size(), 3u);
  EXPECT_EQ(ids.size(), 200u);
  EXPECT_GT(lengths.size(), 100u);
  EXPECT_GT(windows.size(), 50u);
  EXPECT_EQ(ragged_batch(sizes, 0, 7).ids, ragged_batch(sizes, 0, 7).ids);
  EXPECT_NE(ragged_batch(sizes, 0, 7).ids, ragged_batch(sizes, 1, 7).ids);
}

TEST(RecompilePeer, LinesAreReadAndTheRestIsPassedOver) {
  const auto peers = parse_recompile_lines(
      "a library says hello\n{\"versions\": {}}\n[1]\n"
      "{\"peer\": \"flex\", \"mode\": \"padded\", \"batches\": 20,"
      " \"compiles\": 2, \"lengths\": 3, \"eager\": 1, \"pairs\": 7,"
      " \"mask_ms\": 1.5, \"compile_ms\": 2, \"run_ms\": 3}\n"
      "{\"mode\": \"static\", \"batches\": \"many\", \"pairs\": {},"
      " \"mask_ms\": null, \"why\": \"no time was left\"}\n"
      "{\"mode\": 7}\n{\"mode\": \"cut sho");
  ASSERT_EQ(peers.size(), 2u);
  EXPECT_EQ(peers[0].mode, "padded");
  EXPECT_EQ(peers[0].batches, 20);
  EXPECT_EQ(peers[0].compiles, 2);
  EXPECT_EQ(peers[0].eager, 1);
  EXPECT_EQ(peers[0].mask_ms, 1.5);
  EXPECT_EQ(peers[0].compile_ms, 2);
  EXPECT_EQ(peers[1].batches, 0);
  EXPECT_EQ(peers[1].why, "no time was left");
}

class BenchRecompile : public tessera::testing::Program {
 protected:
  void SetUp() override {
    auto plugin = testing::real_plugin("xla_cpu_pjrt");
    if (testing::is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
  }

  json run(const Arguments& more) {
    Arguments all = {"recompile", "--json",   "--batches",
                     "6",         "--tokens", "128"};
    all.insert(all.end(), more.begin(), more.end());
    bench(all);
    return json::parse(out_, nullptr, false);
  }
};

TEST_F(BenchRecompile, CompilesOncePerContractAndNotAgainFromDisk) {
  const json first = run({"--cache", file("cache")});
  ASSERT_EQ(code_, kOk) << err_;
  EXPECT_EQ(first["lane"], "xla");
  EXPECT_EQ(first["batches"], 6);
  EXPECT_GE(first["buckets"], 4);
  EXPECT_EQ(first["compiles"], first["buckets"]);
  EXPECT_EQ(first["compiles_in_loop"], 0);
  EXPECT_EQ(first["disk_hits"], 0);
  EXPECT_TRUE(first["check"]["passed"]);
  EXPECT_EQ(first["check"]["kind"], "full");
  EXPECT_GT(first["check"]["max_ratio"], 0);
  EXPECT_EQ(first["warnings"], json::array());
  const json second = run({"--cache", file("cache")});
  ASSERT_EQ(code_, kOk) << err_;
  EXPECT_EQ(second["compiles"], 0);
  EXPECT_EQ(second["disk_hits"], first["buckets"]);
  EXPECT_EQ(second["buckets"], first["buckets"]);
  const json cold = run({"--cold", "--cache", file("cache")});
  ASSERT_EQ(code_, kOk) << err_;
  EXPECT_EQ(cold["disk_hits"], first["buckets"]);
  EXPECT_FALSE(cold["warmed"]);
}

TEST_F(BenchRecompile, ALimitNamesWhatVaried) {
  run({"--cold", "--max-compiles", "2"});
  EXPECT_EQ(code_, kRefused);
  EXPECT_NE(err_.find("[cache] compiles must be at most 2, found one more"),
            std::string::npos)
      << err_;
  EXPECT_NE(err_.find("q_len "), std::string::npos) << err_;
}

TEST_F(BenchRecompile, WithoutAnInterpreterThePeerIsNotMeasured) {
  const char* name = "TESSERA_TORCH_PYTHON";
  const char* was = std::getenv(name);
  const std::string kept = was ? was : "";
  unsetenv(name);
  const json result = run({"--peers", "bench/peers"});
  if (was) setenv(name, kept.c_str(), 1);
  ASSERT_EQ(code_, kOk) << err_;
  ASSERT_EQ(result["peers"].size(), 1u);
  EXPECT_EQ(result["peers"][0]["why"], "TESSERA_TORCH_PYTHON is not set");
}

// All batches differ, and each fits the kernels of its contract, whose text
// does not change.
TEST(RecompileKernels, BatchesOfAContractHaveOneProgram) {
  RecompileFlags flags;
  flags.lane = "mosaic";
  flags.tokens = "1024";
  flags.batches = "16";
  const auto s = read_settings(flags);
  ASSERT_TRUE(s) << s.error().message;
  std::vector<RaggedBatch> batches;
  for (int64_t i = 0; i < s->batches; ++i) {
    batches.push_back(ragged_batch(s->sizes, 0, i));
  }
  const auto t = compile_kernels(*s, {}, batches);
  ASSERT_TRUE(t) << t.error().message;
  EXPECT_EQ(t->batches, 16);
  EXPECT_EQ(t->shapes.size(), 3u);  // buckets of lengths
  EXPECT_EQ(t->contracts.size(), 6u);
  EXPECT_TRUE(t->one_each());
  EXPECT_GT(t->steps, 2 * 2 * 16);
  EXPECT_EQ(t->compiles, 0);
  // Another ceiling makes another kernel.
  ++batches.front().request.ceilings.max_steps;
  const auto more = compile_kernels(*s, {}, batches);
  ASSERT_TRUE(more) << more.error().message;
  EXPECT_EQ(more->contracts.size(), 8u);
  // A batch above the ceiling does not fit.
  batches.front().request.ceilings.max_steps = 1;
  const auto none = compile_kernels(*s, {}, batches);
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("steps"), std::string::npos)
      << none.error().message;
}

class BenchRecompileKernels : public tessera::testing::Program {};

// A compiler that is named must be present.
TEST_F(BenchRecompileKernels, ACompilerThatWasNamedMustBeThere) {
  TESSERA_NEEDS_PLUGINS();
  bench({"recompile", "--lane", "mosaic", "--batches", "1", "--plugin",
         file("none.so")});
  EXPECT_EQ(code_, kRefused) << out_;
  EXPECT_NE(err_.find("none.so"), std::string::npos) << err_;
}

TEST_F(BenchRecompileKernels, AreCompiledOncePerContract) {
  auto plugin = testing::real_plugin("libtpu");
  if (testing::is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
  bench({"recompile", "--lane", "mosaic", "--batches", "6", "--tokens", "1024",
         "--dtype", "bf16", "--json"});
  ASSERT_EQ(code_, kOk) << err_;
  const json out = json::parse(out_, nullptr, false);
  EXPECT_EQ(out["lane"], "mosaic");
  EXPECT_EQ(out["target"], "v6e:1x1");
  EXPECT_GE(out["buckets"], 4);
  EXPECT_EQ(out["programs"], out["buckets"]);
  EXPECT_EQ(out["compiles"], out["buckets"]);
  EXPECT_TRUE(out["why_not"].is_null());
}

}  // namespace
}  // namespace tessera::bench
