// cli/gate/command_test.cc: `tessera gate`: its flags, its table, its verdicts.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "cli/gate/flags.h"
#include "cli/gate/report.h"
#include "cli/machine.h"
#include "tests/plugins.h"
#include "tests/program.h"
#include "tests/variable.h"

namespace tessera::cli {
namespace {

using nlohmann::json;

const std::string kSplash = "tests/golden/bridge/splash";

TEST(GateFlags, SizesHaveTheArtifactOfTheFlags) {
  GateFlags flags;
  flags.artifact = kSplash + ".mlirbc";
  flags.shapes = kSplash + ".json";
  const auto sizes = read_sizes(flags);
  ASSERT_TRUE(sizes.ok()) << sizes.error().message;
  ASSERT_TRUE(sizes->artifact);
  EXPECT_EQ(sizes->artifact->spec.splash->block_kv, 128);
  EXPECT_FALSE(read_sizes({})->artifact);
}

// A plugin may have any name; the table must still be readable.
TEST(GateReport, AnyPluginsNameIsWrittenOnALine) {
  GateReport report;
  report.machine = {"A CPU", 8, {Isa::portable}, true, true, {}};
  const auto table =
      parse_gate(*read_file("bench/results/amd-epyc/gate.json", 1 << 24));
  ASSERT_TRUE(table.ok()) << table.error().message;
  report.measured = {*table, "a\nb\xff.so"};
  const std::string text = gate_table_json(report);
  EXPECT_EQ(json::parse(text)["plugin"], "a\\x0ab\\xff.so");
  const auto read = parse_gate(text);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(gate_json(*read), gate_json(*table));
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
      // The tile is from the table of settings, not from the request.
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
  // The row for the request on this machine decides.
  ASSERT_EQ(program({"choose", "--mask", "full", "--q-len", "64", "--tile",
                     "128", "--heads", "2", "--head-dim", "128", "--dtype",
                     "bf16", "--gate", path, "--json"}),
            0)
      << err_;
  const json c = json::parse(out_);
  EXPECT_EQ(c["gate"][0]["kernel"], "cpu/forward") << c;
  EXPECT_EQ(c["lane"] == "cpu", c["gate"][0]["factor"] > kWinFactor) << c;
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
  // Verdicts are computed again; all other fields must be consistent.
  for (json& row : j["rows"]) row["verdict"] = "promote";
  ASSERT_TRUE(write_file(file("rows"), j.dump()).ok());
  ASSERT_EQ(program({"gate", "--rows", file("rows"), "-o", file("out")}), 0)
      << err_;
  EXPECT_EQ(gate_json(*parse_gate(*read_file(file("out"), 1 << 24))),
            gate_json(*table));
  // The file of given rows is not overwritten.
  EXPECT_EQ(program({"gate", "--rows", file("rows"), "-o", file("rows")}), 2);
  EXPECT_EQ(err_,
            "tessera: [cli] each file must have a name of its own, found '" +
                file("rows") + "' twice\n");
  EXPECT_EQ(*read_file(file("rows"), 1 << 24), j.dump());
  j["rows"][0]["factor"] = 7;
  ASSERT_TRUE(write_file(file("rows"), j.dump()).ok());
  EXPECT_EQ(program({"gate", "--rows", file("rows")}), 2);
  EXPECT_TRUE(err_.starts_with("tessera: [gate] factor must be")) << err_;
  ASSERT_TRUE(write_file(file("rows"), "{").ok());
  EXPECT_EQ(program({"gate", "--rows", file("rows")}), 2);
  EXPECT_EQ(err_,
            "tessera: [gate] text must be valid JSON, found the end of the "
            "text for line 1, column 2 (in '" +
                file("rows") + "')\n");
  EXPECT_EQ(program({"gate", "--rows", file("none")}), 2);
  EXPECT_TRUE(err_.starts_with("tessera: [file] ")) << err_;
}

// Of windows, documents, softcaps and gradients no time is known on a TPU: each
// predicted row says so, also in the table that is kept.
TEST_F(GateCommand, PredictedRowsSayHowFarTheyWereChecked) {
  const std::string kept = "bench/results/v6e/gate.json";
  ASSERT_EQ(program({"gate", "--rows", kept, "-o", file("out")}), 0) << err_;
  const std::string text = out_;
  const json out = json::parse(*read_file(file("out"), 1 << 24));
  const std::string programs =
      "another kernel's forward passes without documents or softcap";
  const std::string says = ", predicted, known of " + programs + "\n";
  size_t lines = 0;
  for (size_t at = 0; (at = text.find(says, at)) != text.npos; ++at) ++lines;
  EXPECT_EQ(lines, out["rows"].size()) << text;
  for (const json& row : out["rows"]) {
    EXPECT_EQ(row["calibrated"], false);
    EXPECT_EQ(row["calibrated_on"], programs);
  }
  EXPECT_EQ(json::parse(*read_file(kept, 1 << 24))["rows"], out["rows"]);
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
  EXPECT_EQ(refused({"--dtype", "f32,bf16,f32"}),
            "tessera: [cli] --dtype takes each name once, found f32 twice\n");
  EXPECT_EQ(refused({"--tokens", "64,128,0064"}),
            "tessera: [cli] --tokens takes each length once, found 64 twice\n");
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
  ASSERT_TRUE(write_file(file("kernel"), "its bytes").ok());
  EXPECT_EQ(refused({"--artifact", file("kernel"), "--shapes", file("x"), "-o",
                     file("kernel")}),
            "tessera: [cli] each file must have a name of its own, found '" +
                file("kernel") + "' twice\n");
  EXPECT_EQ(refused({"--artifact", "tests/golden/bridge/small.mlirbc",
                     "--shapes", "tests/golden/bridge/small.json"}),
            "tessera: [cli] --artifact must be Splash's kernel, found "
            "'small'\n");
  // Only the program for benchmarks has --record.
  EXPECT_TRUE(refused({"--record"})
                  .starts_with("tessera: [cli] a flag must be one of "));
  EXPECT_EQ(bench({"gate", "--quick", "--record", "-o", file("x")}), 2);
  EXPECT_TRUE(
      err_.starts_with("tessera-bench: [cli] --record names the file itself"));
}

TEST_F(GateCommand, ATableWithoutTimesIsNotRecorded) {
  const tessera::testing::Variable python("TESSERA_PYTHON", "/nowhere/python");
  const tessera::testing::Variable path("TESSERA_PJRT_XLA_CPU_PJRT", nullptr);
  const std::string folder =
      file("bench/results/" + slug(this_machine(true).cpu));
  std::filesystem::create_directories(folder);
  ASSERT_TRUE(write_file(folder + "/gate.json", "of before").ok());
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(file(""));
  const int code = bench(
      {"gate", "--quick", "--record", "--tokens", "64", "--dtype", "f32"});
  std::filesystem::current_path(before);
  EXPECT_EQ(code, 2);
  EXPECT_TRUE(
      err_.starts_with("tessera-bench: [gate] a table that is recorded "
                       "must have times, found none: "))
      << err_;
  EXPECT_EQ(*read_file(folder + "/gate.json", 64), "of before");
}

}  // namespace
}  // namespace tessera::cli
