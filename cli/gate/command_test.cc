// cli/gate/command_test.cc: `tessera gate`: its cases, its table, its verdicts.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/files.h"
#include "cli/gate/cases.h"
#include "cli/gate/flags.h"
#include "cli/gate/measure.h"
#include "plan/make_plan.h"
#include "tests/plugins.h"
#include "tests/program.h"
#include "tests/variable.h"

namespace tessera::cli {
namespace {

using nlohmann::json;

TEST(GateCases, HoldEveryKernelAndClass) {
  GateSizes sizes;
  sizes.tokens = {1024};
  sizes.dtypes = {Dtype::f32, Dtype::bf16};
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
  out.decode_keys.clear();
  out.artifact = *load_artifact(kSplash + ".mlirbc", kSplash + ".json");
  return out;
}

// Head dim 16 is none of our TPU kernel's.
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

TEST(GateCases, SizesHaveTheArtifactOfTheFlags) {
  GateFlags flags;
  flags.artifact = kSplash + ".mlirbc";
  flags.shapes = kSplash + ".json";
  const auto sizes = read_sizes(flags);
  ASSERT_TRUE(sizes.ok()) << sizes.error().message;
  ASSERT_TRUE(sizes->artifact);
  EXPECT_EQ(sizes->artifact->spec.splash->block_kv, 128);
  EXPECT_FALSE(read_sizes({})->artifact);
}

class GateCommand : public tessera::testing::Program {
 protected:
};

TEST_F(GateCommand, WithoutAPluginNothingIsMeasured) {
  const tessera::testing::Variable python("TESSERA_PYTHON", "/nowhere/python");
  const tessera::testing::Variable path("TESSERA_PJRT_XLA_CPU_PJRT", nullptr);
  ASSERT_EQ(program({"gate", "--quick", "--tokens", "64", "--dtype", "f32",
                     "--json"}),
            0)
      << err_;
  const auto table = parse_gate(out_);
  ASSERT_TRUE(table.ok()) << table.error().message;
  EXPECT_EQ(table->rows.size(), 8u * 4 + 2);
  for (const GateRow& row : table->rows) {
    EXPECT_EQ(row.verdict, GateVerdict::unmeasured);
    EXPECT_FALSE(row.why.empty());
    const bool runs = row.lane != LaneId::mosaic;
    ASSERT_TRUE(row.tile) << row.kernel;
    if (runs) {
      EXPECT_EQ(*row.tile, (Tile{128, 128}));
    }
    EXPECT_EQ(row.judgement,
              runs ? GateJudgement::passed : GateJudgement::unjudged)
        << row.kernel;
  }
}

TEST_F(GateCommand, MeasuresAndWritesATableThatRunReads) {
  const auto plugin = tessera::testing::real_plugin("xla_cpu_pjrt");
  if (tessera::testing::is_absent(plugin)) {
    GTEST_SKIP() << plugin.error().message;
  }
  const std::string path = file("gate.json");
  ASSERT_EQ(program({"gate", "--quick", "--tokens", "64", "--dtype", "bf16",
                     "--head-dim", "128", "-o", path}),
            0)
      << err_;
  EXPECT_NE(out_.find("cpu/forward"), std::string::npos) << out_;
  const auto table = parse_gate(*read_file(path, 1 << 24));
  ASSERT_TRUE(table.ok()) << table.error().message;
  int measured = 0, tpu = 0;
  for (const GateRow& row : table->rows) {
    if (row.lane == LaneId::mosaic) {
      ++tpu;
      // By the table of heads alone, and not the request's own.
      if (row.mask == "full" && !row.backward) {
        EXPECT_EQ(row.tile, (Tile{512, 256}));
      }
      EXPECT_EQ(row.verdict, GateVerdict::unmeasured);
      EXPECT_EQ(row.judgement, GateJudgement::unjudged);
      EXPECT_FALSE(row.why.empty());
      continue;
    }
    ++measured;
    ASSERT_TRUE(row.kernel_ms && row.plain_ms) << row.kernel;
    EXPECT_GT(*row.kernel_ms, 0);
    EXPECT_GT(*row.plain_ms, 0);
    EXPECT_EQ(row.factor, *row.plain_ms / *row.kernel_ms);
    EXPECT_EQ(row.judgement, GateJudgement::passed) << row.why;
    EXPECT_GT(*row.error, 0);
    EXPECT_LE(*row.error, 1);
  }
  EXPECT_EQ(measured, 18);  // two of decode
  EXPECT_GE(tpu, 12);
  // The row of a request on this machine decides.
  ASSERT_EQ(program({"choose", "--mask", "full", "--q-len", "64", "--tile",
                     "128", "--heads", "2", "--head-dim", "128", "--dtype",
                     "bf16", "--gate", path, "--json"}),
            0)
      << err_;
  const json c = json::parse(out_);
  EXPECT_EQ(c["gate"][0]["kernel"], "cpu/forward") << c;
  EXPECT_EQ(c["lane"] == "cpu", c["gate"][0]["factor"] > kWinFactor) << c;
}

// Interpreted here: judged and timed beside XLA as ours are, where the plan has
// no more tiles a row than the artifact.
TEST_F(GateCommand, MeasuresSplashBesideOurs) {
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

// What is measured here at tiles of 128 and less stands beside XLA's programs
// at the granule, which a TPU takes without a reason. Nobody gives Splash one.
TEST_F(GateCommand, OnATpuXlaHasTilesOfItsGranule) {
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

TEST_F(GateCommand, RowsFromElsewhereGetTheirVerdicts) {
  ASSERT_EQ(
      program({"gate", "--rows", "bench/results/amd-epyc/gate.json", "--json"}),
      0)
      << err_;
  const auto table = parse_gate(out_);
  ASSERT_TRUE(table.ok()) << table.error().message;
  EXPECT_EQ(gate_json(*table),
            gate_json(*parse_gate(
                *read_file("bench/results/amd-epyc/gate.json", 1 << 24))));
  json j = json::parse(out_);
  // Verdicts are made anew; anything else must hold as it stands.
  for (json& row : j["rows"]) row["verdict"] = "promote";
  ASSERT_TRUE(write_file(file("rows"), j.dump()).ok());
  ASSERT_EQ(program({"gate", "--rows", file("rows"), "-o", file("out")}), 0)
      << err_;
  EXPECT_EQ(gate_json(*parse_gate(*read_file(file("out"), 1 << 24))),
            gate_json(*table));
  j["rows"][0]["factor"] = 7;
  ASSERT_TRUE(write_file(file("rows"), j.dump()).ok());
  EXPECT_EQ(program({"gate", "--rows", file("rows")}), 2);
  EXPECT_TRUE(err_.starts_with("tessera: [gate] factor must be")) << err_;
  EXPECT_EQ(program({"gate", "--rows", file("none")}), 2);
  EXPECT_TRUE(err_.starts_with("tessera: [file] ")) << err_;
}

TEST_F(GateCommand, FlagsAreChecked) {
  const auto refused = [&](const std::vector<std::string>& more) {
    std::vector<std::string> a = {"gate", "--quick"};
    a.insert(a.end(), more.begin(), more.end());
    EXPECT_EQ(program(a), 2) << out_;
    return err_;
  };
  EXPECT_EQ(refused({"--dtype", "f16"}),
            "tessera: [cli] --dtype must be f32, bf16 or both, found 'f16'\n");
  EXPECT_EQ(refused({"--head-dim", "12"}),
            "tessera: [cli] --head-dim must be a multiple of 8, found 12\n");
  EXPECT_TRUE(refused({"--tokens", "0"}).starts_with("tessera: [cli] "));
  EXPECT_TRUE(refused({"--rounds", "0"}).starts_with("tessera: [cli] "));
  EXPECT_TRUE(
      refused({"-o", "/nowhere/gate.json"}).starts_with("tessera: [file] "));
  EXPECT_EQ(refused({"--rows", file("x")}),
            "tessera: [cli] --rows measures nothing and goes with -o and "
            "--json alone, found --quick\n");
  EXPECT_EQ(refused({"--artifact", file("x")}),
            "tessera: [cli] --artifact goes with --shapes, found --artifact "
            "alone\n");
  EXPECT_EQ(refused({"--artifact", "tests/golden/bridge/small.mlirbc",
                     "--shapes", "tests/golden/bridge/small.json"}),
            "tessera: [cli] --artifact must be Splash's kernel, found "
            "'small'\n");
  // The program for benchmarks alone has it.
  EXPECT_TRUE(refused({"--record"})
                  .starts_with("tessera: [cli] a flag must be one of "));
  EXPECT_EQ(bench({"gate", "--quick", "--record", "-o", file("x")}), 2);
  EXPECT_TRUE(
      err_.starts_with("tessera-bench: [cli] --record names the file itself"));
}

}  // namespace
}  // namespace tessera::cli
