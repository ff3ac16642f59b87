// run/gate_measure_test.cc: tests the cases of a gate's table and their
// measurement.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "plan/make_plan.h"
#include "run/gate_cases.h"
#include "tests/plugins.h"
#include "tests/variable.h"

namespace tessera::run {
namespace {

TEST(GateCases, HoldEveryKernelAndClass) {
  GateSizes sizes;
  sizes.tokens = {1024};
  std::set<std::string> kernels;
  std::set<std::pair<RequestClass, int>> places;
  std::set<std::pair<Dtype, int64_t>> decoded;  // by buckets of keys
  for (const GateCase& c : gate_cases(sizes)) {
    kernels.insert(c.kernel);
    if (c.kernel == "cpu/decode") {
      decoded.insert({c.dtype, bucket(c.request.kv_len)});
    }
    Facts facts;
    if (!c.doc_ids.empty()) facts.doc_ids = c.doc_ids;
    const auto plan = plan::make_plan(c.request, facts);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    const RequestFeatures f = features_of(c.request, facts, c.shape, {c.dtype});
    places.insert(
        {f.request_class, density_class(plan_facts(*plan).density())});
  }
  EXPECT_EQ(kernels,
            (std::set<std::string>{"cpu/backward", "cpu/decode", "cpu/forward",
                                   "mosaic/backward", "mosaic/forward"}));
  EXPECT_GE(decoded.size(), 3U);  // as many as a promotion takes
  const auto densities = [&](RequestClass c) {
    int n = 0;
    for (const auto& [at, unused] : places) n += at == c ? 1 : 0;
    return n;
  };
  EXPECT_GE(densities(RequestClass::sparse_blocks), 3);
  EXPECT_GE(densities(RequestClass::custom), 3);
  EXPECT_GE(densities(RequestClass::plain_causal), 1);
  EXPECT_GE(densities(RequestClass::other), 1);
}

const std::string kSplash = "tests/golden/bridge/splash";

// Splash's kernel of 256 queries and 384 keys, with room for 2 tiles a row.
GateSizes of_splash_alone() {
  GateSizes out;
  out.tokens.clear();
  out.dtypes.clear();
  out.decode_keys.clear();
  out.artifact = *load_artifact(kSplash + ".mlirbc", kSplash + ".json");
  return out;
}

// Our TPU kernel does not have head dim 16.
TEST(GateCases, AnArtifactComesWithOursOfItsSizes) {
  const GateSizes sizes = of_splash_alone();
  std::map<std::string, int> kernels;
  for (const GateCase& c : gate_cases(sizes)) {
    ++kernels[c.kernel];
    EXPECT_EQ(c.request.q_len, 256);
    EXPECT_EQ(c.request.kv_len, 384);
    EXPECT_EQ(c.shape.kv_heads, 2);
    EXPECT_EQ(c.shape.head_dim, 16);
    EXPECT_EQ(c.dtype, Dtype::f32);
    EXPECT_FALSE(c.backward);
    const bool splash = c.lane == LaneId::splash;
    EXPECT_EQ(c.artifact, splash ? &*sizes.artifact : nullptr);
    EXPECT_EQ(c.request.tile, splash ? (Tile{64, 128}) : (Tile{128, 128}));
  }
  EXPECT_EQ(kernels, (std::map<std::string, int>{{"cpu/forward", 7},
                                                 {"splash/forward", 7}}));
}

// Splash's kernel, interpreted here, is judged and timed with XLA like our
// kernels, if the plan has no more tiles a row than the artifact.
TEST(GateMeasure, MeasuresSplashBesideOurs) {
  const auto plugin = tessera::testing::real_plugin("xla_cpu_pjrt");
  if (tessera::testing::is_absent(plugin)) {
    GTEST_SKIP() << plugin.error().message;
  }
  const Machine machine = this_machine(true);
  if (!machine.only_cpu()) GTEST_SKIP() << "the artifact is for a CPU";
  const auto measured = measure_gate(of_splash_alone(), 1, {}, machine);
  ASSERT_TRUE(measured.ok()) << measured.error().message;
  int timed = 0, wide = 0;
  for (const GateRow& row : measured->table.rows) {
    if (row.lane != LaneId::splash) continue;
    SCOPED_TRACE(row.mask);
    EXPECT_EQ(row.machine, machine.key());
    EXPECT_EQ(row.tile, (Tile{64, 128}));
    if (row.mask == "full" || row.mask == "causal") {
      EXPECT_EQ(row.why, "its artifact has 2 tiles a row, not 3");
      EXPECT_EQ(row.judgement, GateJudgement::unjudged);
      EXPECT_FALSE(row.factor);
      ++wide;
      continue;
    }
    EXPECT_EQ(row.judgement, GateJudgement::passed) << row.why;
    ASSERT_TRUE(row.factor) << row.why;
    EXPECT_EQ(*row.factor, *row.plain_ms / *row.kernel_ms);
    EXPECT_GT(*row.error, 0);
    ++timed;
  }
  EXPECT_EQ(wide, 2);
  EXPECT_EQ(timed, 5);
  EXPECT_TRUE(parse_gate(gate_json(measured->table)).ok());
}

// Kernels at tiles of 128 are timed with XLA's programs at the granule, which
// need no lowering reason. Splash would need one and has none.
TEST(GateMeasure, OnATpuXlaHasTilesOfItsGranule) {
  TESSERA_NEEDS_PLUGINS();
  const auto real = tessera::testing::real_plugin("xla_cpu_pjrt");
  if (tessera::testing::is_absent(real)) GTEST_SKIP() << real.error().message;
  ASSERT_TRUE(real.ok()) << real.error().message;
  const tessera::testing::Variable wrapped("TESSERA_TEST_WRAPPED_PLUGIN",
                                           (*real)->path().c_str());
  GateSizes sizes = of_splash_alone();
  sizes.artifact->spec.platforms = {"tpu"};
  Machine machine = this_machine(false);
  machine.plugins = {{tessera::testing::fake_plugin("tpu"), "tpu", 1, "v6e"}};
  const auto measured = measure_gate(sizes, 1, {}, machine);
  ASSERT_TRUE(measured.ok()) << measured.error().message;
  EXPECT_EQ(measured->plugin, "tpu.so");
  for (const GateRow& row : measured->table.rows) {
    SCOPED_TRACE(row.kernel + " " + row.mask);
    if (row.lane == LaneId::cpu) {
      EXPECT_TRUE(row.factor) << row.why;
      EXPECT_EQ(row.tile, (Tile{128, 128}));
      continue;
    }
    EXPECT_EQ(row.judgement, GateJudgement::unjudged);
    EXPECT_FALSE(row.why.empty());
  }
}

TEST(GateMeasure, TellsHowFarItIs) {
  const tessera::testing::Variable python("TESSERA_PYTHON", "/nowhere/python");
  const tessera::testing::Variable path("TESSERA_PJRT_XLA_CPU_PJRT", nullptr);
  GateSizes sizes;
  sizes.tokens.clear();
  sizes.dtypes = {Dtype::f32};
  sizes.heads = 2;
  sizes.head_dim = 64;
  sizes.decode_keys = {128, 512};
  Machine machine = this_machine(false);
  machine.plugins.clear();
  std::vector<double> told;
  const auto measured = measure_gate(
      sizes, 1, {}, machine, [&](double share) { told.push_back(share); });
  ASSERT_TRUE(measured.ok()) << measured.error().message;
  EXPECT_EQ(told, (std::vector<double>{0.5, 1}));
  ASSERT_EQ(measured->table.rows.size(), 2U);
  for (const GateRow& row : measured->table.rows) {
    EXPECT_EQ(row.kernel, "cpu/decode");
    EXPECT_EQ(row.judgement, GateJudgement::passed) << row.why;
    EXPECT_EQ(row.why, measured->plugin);
  }
}

TEST(GateMeasure, SizesAreChecked) {
  const Machine machine = this_machine(false);
  const auto refused = [&](const GateSizes& sizes, int64_t rounds) {
    const auto measured = measure_gate(sizes, rounds, {}, machine);
    return measured ? std::string() : measured.error().message;
  };
  GateSizes sizes;
  sizes.dtypes.clear();
  EXPECT_EQ(refused(sizes, 1),
            "[gate] there must be dtypes or an artifact, found none");
  sizes.dtypes = {Dtype::f32};
  sizes.tokens = {64, 0};
  EXPECT_EQ(refused(sizes, 1),
            "[gate] tokens and decode_keys must be 1 to 1048576, found 0");
  sizes.tokens.clear();
  sizes.decode_keys = {1048577};
  EXPECT_EQ(refused(sizes, 1),
            "[gate] tokens and decode_keys must be 1 to 1048576, found "
            "1048577");
  sizes.decode_keys.clear();
  for (const int64_t heads : {0, 16385}) {
    sizes.heads = heads;
    EXPECT_EQ(refused(sizes, 1), "[gate] heads must be 1 to 16384, found " +
                                     std::to_string(heads));
  }
  sizes.heads = 1;
  EXPECT_EQ(refused(sizes, 0), "[gate] rounds must be from 1, found 0");
  EXPECT_EQ(refused(sizes, 1),
            "[gate] a table must have rows, found none for the sizes");
  sizes = of_splash_alone();
  sizes.artifact->spec.splash.reset();
  EXPECT_TRUE(refused(sizes, 1).starts_with(
      "[gate] the artifact must be Splash's kernel, found '"));
}

}  // namespace
}  // namespace tessera::run
