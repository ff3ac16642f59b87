// cli/train/command_test.cc: `tessera train` as a user runs it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/digest.h"
#include "base/files.h"
#include "base/safetensors.h"
#include "data/arrow_component.h"
#include "data/row_files.h"
#include "lanes/cpu/ffi_handlers.h"
#include "receipt/read.h"
#include "tests/full_disk.h"
#include "tests/last_bits.h"
#include "tests/packed_program.h"
#include "tests/plugins.h"
#include "tests/spans.h"

namespace tessera::cli {
namespace {

using nlohmann::json;

class TrainCommand : public tessera::testing::PackedProgram {
 protected:
  void SetUp() override {
    pack_documents(40, [](int d) { return 20 + d; }, 128,
                   {"--rows-per-file", "3"});
    std::ofstream(path("model.json"))
        << R"({"vocab": 61, "width": 32, "head_dim": 8, "mlp_width": 48})";
  }

  bool has_plugin() {
    for (const char* name : {"lammps_jax_pjrt_cpu", "xla_cpu_pjrt"}) {
      if (testing::is_absent(testing::real_plugin(name))) return false;
    }
    return true;
  }
  std::string path(const std::string& name) { return folder_.file(name); }

  void train(std::vector<std::string> more) {
    more.insert(more.begin(),
                {"train", "--data", path("rows"), "--model", path("model.json"),
                 "--rows", "2", "--tile", "32x32", "--cache", path("cache")});
    program(more);
  }
  json trained(std::vector<std::string> more) {
    more.push_back("--json");
    train(more);
    EXPECT_EQ(code_, kOk) << err_;
    return json::parse(out_, nullptr, false);
  }
  void refuses(std::vector<std::string> more, const std::string& why) {
    train(std::move(more));
    EXPECT_EQ(code_, kRefused);
    EXPECT_NE(err_.find(why), std::string::npos) << err_;
  }
};

TEST_F(TrainCommand, GoesOnWhereItStopped) {
  if (!has_plugin()) GTEST_SKIP() << "no plugins for the CPU";
  const json whole =
      trained({"--steps", "6", "--rate", "1e-2", "--picture", path("loss.svg"),
               "--checkpoint", path("whole.safetensors"), "--save-program",
               path("step.mlir")});
  ASSERT_EQ(whole["losses"].size(), 6U);
  EXPECT_EQ(whole["compiles"], 1);
  EXPECT_EQ(whole["tiles_run"], whole["tiles_planned"]);
  EXPECT_LT(whole["losses"][5], whole["losses"][0]);
  // Two layers; in each 256 rows of 32 numbers are multiplied to 64 of q, k, v.
  EXPECT_EQ(whole["work"][1]["slot"], "linear_qkv");
  EXPECT_EQ(whole["work"][1]["flops"], 2 * 2 * 256 * 32 * 64);
  EXPECT_EQ(whole["work"][1]["flops_back"], 2 * 2 * 2 * 256 * 32 * 64);
  EXPECT_EQ(whole["work"][1]["bytes"]["outputs"], 2 * 256 * 64 * 4);
  EXPECT_EQ(whole["work"][1]["bytes"]["written_back"],
            2 * 4 * (256 * 32 + 32 * 64));
  EXPECT_TRUE(whole["work"][2]["flops"].is_null());
  // The batches are known here: tiles of 32 x 32, four heads of dim 8.
  EXPECT_EQ(whole["attention_flops"],
            whole["tiles_planned"].get<double>() * 32 * 32 * 4 * 8 * 14);
  EXPECT_NE(read_file(path("loss.svg"), 1 << 20)->find("<polyline"),
            std::string::npos);
  // The next state reuses the memory of the previous state.
  const std::string text = *read_file(path("step.mlir"), 1 << 24);
  EXPECT_NE(text.find("module @tessera_step"), std::string::npos);
  EXPECT_NE(text.find("tf.aliasing_output"), std::string::npos);

  // A run that also saves its state after step 3 ends with the same state.
  train({"--steps", "6", "--rate", "1e-2", "--checkpoint",
         path("part.safetensors"), "--every", "3"});
  ASSERT_EQ(code_, kOk) << err_;
  EXPECT_NE(out_.find("found on disk"), std::string::npos) << out_;
  EXPECT_NE(out_.find("linear_qkv    2.1 M FLOP; 65.5 kB of inputs, 16.4 kB of "
                      "parameters, 131 kB of outputs, 65.5 kB kept\n"),
            std::string::npos)
      << out_;
  EXPECT_NE(
      out_.find("linear_qkv    4.19 M FLOP; 213 kB read, 81.9 kB written\n"),
      std::string::npos)
      << out_;
  EXPECT_EQ(*read_file(path("part.safetensors"), 1 << 24),
            *read_file(path("whole.safetensors"), 1 << 24));
  refuses({"--steps", "6", "--resume", path("part.safetensors")},
          "--steps must be above those that were done, found 6 for 6");
  const Trace trace;
  const json more =
      trained({"--steps", "9", "--resume", path("part.safetensors")});
  EXPECT_EQ(testing::spans_of(trace)["checkpoint read"], 1);
  EXPECT_EQ(more["first_step"], 7);
  EXPECT_EQ(more["losses"].size(), 3U);
  EXPECT_EQ(more["compiles"], 0);
  // Without --model the model is that of the checkpoint.
  program({"train", "--data", path("rows"), "--rows", "2", "--tile", "32x32",
           "--cache", path("cache"), "--steps", "9", "--resume",
           path("part.safetensors"), "--json"});
  ASSERT_EQ(code_, kOk) << err_;
  EXPECT_EQ(json::parse(out_)["losses"], more["losses"]);
}

TEST_F(TrainCommand, AWarmedRunCompilesNothing) {
  if (!has_plugin()) GTEST_SKIP() << "no plugins for the CPU";
  const json warmed = trained({"--warm"});
  EXPECT_EQ(warmed["compiles"], 1);
  EXPECT_EQ(warmed["cache"], path("cache"));
  EXPECT_FALSE(warmed.contains("losses"));
  EXPECT_EQ(trained({"--warm"})["disk_hits"], 1);
  {
    const Trace trace;
    train({"--warm"});
    EXPECT_EQ(testing::spans_of(trace)["pjrt to_device"], 0);
  }
  EXPECT_NE(out_.find("0 programs in"), std::string::npos) << out_;
  const json ran =
      trained({"--steps", "2", "--checkpoint", path("state.safetensors")});
  EXPECT_EQ(ran["compiles"], 0);
  EXPECT_EQ(ran["program"], warmed["program"]);
  EXPECT_EQ(
      trained({"--warm", "--resume", path("state.safetensors")})["compiles"],
      0);
  // With several devices the ceilings depend on the rows of all steps.
  const std::vector<std::string> spread = {"--mesh", "seq=2",   "--exchange",
                                           "rounds", "--steps", "3"};
  std::vector<std::string> warm = spread;
  warm.push_back("--warm");
  EXPECT_EQ(trained(warm)["compiles"], 1);
  EXPECT_EQ(trained(spread)["compiles"], 0);
}

// The receipt has the warnings of the log; they do not affect the cache.
TEST_F(TrainCommand, WarnsOfAMeshWhosePluginErrs) {
  if (!has_plugin()) GTEST_SKIP() << "no plugins for the CPU";
  std::ofstream(path("model.json"))
      << R"({"vocab": 61, "width": 32, "head_dim": 8, "mlp_width": 48,
             "layers": 1})";
  const std::string why = "found xla_cpu_pjrt, whose are wrong once in a while";
  const std::vector<std::string> on = {"--mesh", "data=2", "--plugin",
                                       "xla_cpu_pjrt"};
  std::vector<std::string> warm = on, run = on;
  warm.push_back("--warm");
  train(warm);
  EXPECT_EQ(code_, kOk) << err_;
  EXPECT_NE(err_.find("warning: [train] devices of a mesh"), std::string::npos)
      << err_;
  run.insert(run.end(), {"--steps", "1", "--receipt", path("receipt")});
  const json r = trained(run);
  EXPECT_EQ(r["compiles"], 0);
  ASSERT_EQ(r["warnings"].size(), 1U);
  EXPECT_NE(r["warnings"][0].get<std::string>().find(why), std::string::npos);
  EXPECT_NE(err_.find(why), std::string::npos) << err_;
  EXPECT_EQ(program({"receipt", "show", path("receipt")}), kOk) << err_;
  EXPECT_NE(out_.find("\nwarning     [train] devices"), std::string::npos)
      << out_;
  EXPECT_EQ(trained({"--steps", "1"})["warnings"], json::array());
}

// As for attention programs, a cache folder that cannot be written is reported.
TEST_F(TrainCommand, AFolderThatCannotKeepWhatIsWarmedIsAFailure) {
  if (!has_plugin()) GTEST_SKIP() << "no plugins for the CPU";
  program({"train", "--data", path("rows"), "--model", path("model.json"),
           "--rows", "2", "--tile", "32x32", "--cache", "/proc/self/nowhere",
           "--warm", "--json"});
  EXPECT_EQ(code_, kFailed) << out_;
  const json out = json::parse(out_);
  EXPECT_EQ(out["compiles"], 1);
  EXPECT_FALSE(out["warnings"].empty());
  EXPECT_NE(err_.find("warning: "), std::string::npos) << err_;
  // A run that continues without a cache gets a warning.
  program({"train", "--data", path("rows"), "--model", path("model.json"),
           "--rows", "2", "--tile", "32x32", "--cache", "/proc/self/nowhere",
           "--steps", "1"});
  EXPECT_EQ(code_, kOk) << err_;
  EXPECT_NE(err_.find("warning: "), std::string::npos) << err_;
}

TEST_F(TrainCommand, WarmRunsNoStep) {
  for (const auto& [flag, file] :
       {std::pair("--checkpoint", "state"), std::pair("--picture", "loss.svg"),
        std::pair("--receipt", "receipt.json")}) {
    refuses({"--warm", flag, path(file)},
            fmt::format("[cli] --warm runs no step, found {} beside it", flag));
  }
  refuses({"--warm", "--compile-only"},
          "[cli] --compile-only runs no step, found --warm beside it");
  program({"train", "--data", path("rows"), "--model", path("model.json"),
           "--warm", "--cache", "off"});
  EXPECT_EQ(code_, kRefused);
  EXPECT_EQ(err_,
            "tessera: [cli] warmed programs must be kept in a folder for other "
            "processes, found none (--cache FOLDER)\n");
}

TEST_F(TrainCommand, ADiskThatFillsUpLeavesTheLastCheckpoint) {
  if (!has_plugin()) GTEST_SKIP() << "no plugins for the CPU";
  train({"--steps", "2", "--checkpoint", path("state.safetensors")});
  ASSERT_EQ(code_, kOk) << err_;
  const std::string before = *read_file(path("state.safetensors"), 1 << 24);
  {
    const testing::FullDisk disk(4096);
    ASSERT_TRUE(disk.holds());
    train({"--steps", "6", "--resume", path("state.safetensors"),
           "--checkpoint", path("state.safetensors"), "--every", "2"});
  }
  EXPECT_EQ(code_, kRefused);
  EXPECT_EQ(err_,
            "tessera: [file] output must be writable, found \"File too large\" "
            "for '" +
                path("state.safetensors") + "'\n");
  EXPECT_EQ(*read_file(path("state.safetensors"), 1 << 24), before);
  // The next run resumes from it.
  EXPECT_EQ(trained({"--steps", "6", "--resume",
                     path("state.safetensors")})["first_step"],
            3);
}

TEST_F(TrainCommand, RemovesWhatAKilledRunLeftBesideItsOutputs) {
  if (!has_plugin()) GTEST_SKIP() << "no plugins for the CPU";
  std::vector<std::string> arguments = {"--steps", "1"};
  for (const auto& [flag, name] :
       {std::pair("--checkpoint", "state.safetensors"),
        std::pair("--save-program", "step.mlir"),
        std::pair("--picture", "loss.svg"),
        std::pair("--receipt", "receipt.json")}) {
    arguments.insert(arguments.end(), {flag, path(name)});
    std::ofstream(path(std::string(kUnfinishedStart) + digest_of(name) +
                       std::string(kUnfinishedEnd)))
        << "cut short";
  }
  ASSERT_EQ(unfinished_files(), 4);
  train(arguments);
  ASSERT_EQ(code_, kOk) << err_;
  EXPECT_EQ(unfinished_files(), 0);
}

// As text; the JSON has them in the model.
TEST_F(TrainCommand, SaysWhichLayersAreClustered) {
  if (!has_plugin()) GTEST_SKIP() << "no plugins for the CPU";
  std::ofstream(path("model.json"))
      << R"({"vocab": 61, "width": 32, "head_dim": 8, "mlp_width": 48,
             "layers": 3, "routes": [{"top": 2, "block": 16}, null]})";
  train({"--steps", "2"});
  ASSERT_EQ(code_, kOk) << err_;
  EXPECT_NE(out_.find("clustered  routed(2, 16) by kv-head within the step: "
                      "layers 0, 2\n"),
            std::string::npos)
      << out_;
  const json r = trained({"--steps", "2"});
  const json routes =
      json::parse(R"([{"top": 2, "block": 16, "rule": "kv-head"}, null])");
  EXPECT_EQ(r["model"]["routes"], routes);
  EXPECT_LE(r["tiles_run"], r["tiles_planned"]);
  refuses({"--spec", "tpu", "--compile-only", "--lowering-reason", "small"},
          "found routed(2, 16) by kv-head for tpu");
}

// A run from a seed, and a run that resumes it on a mesh. Both are verified
// from their receipts.
TEST_F(TrainCommand, HasAReceiptThatIsVerified) {
  if (!has_plugin()) GTEST_SKIP() << "no plugins for the CPU";
  const auto verify = [&](const char* name) {
    return program({"receipt", "verify", path(name)});
  };
  const auto forge = [&](const json& good,
                         const std::function<void(json&)>& change) {
    json r = good;
    change(r);
    r["receipt_digest"] = receipt::receipt_digest(r);
    std::ofstream(path("forged")) << r;
  };
  // One layer only, because each verify compiles it again.
  std::ofstream(path("model.json"))
      << R"({"vocab": 61, "width": 32, "head_dim": 8, "mlp_width": 48,
             "layers": 1})";
  const json first =
      trained({"--steps", "2", "--seed", "5", "--checkpoint",
               path("state.safetensors"), "--receipt", path("first")});
  EXPECT_EQ(json::parse(*read_file(path("first"), 1 << 20)), first);
  EXPECT_EQ(first["operation"], "train");
  EXPECT_EQ(first["inputs"]["seed"], 5);
  EXPECT_TRUE(first["start"].is_null());
  const auto bytes = *read_file(path("state.safetensors"), 1 << 24);
  Digest digest;
  digest.add(bytes.data(), bytes.size());
  EXPECT_EQ(first["output"]["digest"], digest.hex());
  EXPECT_EQ(verify("first"), kOk) << out_ << err_;
  EXPECT_EQ(program({"receipt", "show", path("first")}), kOk) << err_;
  for (const char* line :
       {"\nmodel       1 layers, ", " spec xla: attention by worklist\n",
        "\nprecision   F32: products, attention, softmax, ",
        "\nforward     norm ", "\nback        norm ", "\nsteps       1 to 2\n",
        "\ntrained     "}) {
    EXPECT_NE(("\n" + out_).find(line), std::string::npos) << line << out_;
  }

  const json more =
      trained({"--steps", "3", "--resume", path("state.safetensors"), "--mesh",
               "data=2", "--dtype", "bf16", "--recompute", "--weight-decay",
               "0.3", "--receipt", path("more")});
  EXPECT_EQ(more["start"], path("state.safetensors"));
  EXPECT_EQ(more["inputs"]["seed"], 0);
  EXPECT_EQ(verify("more"), kOk) << out_ << err_;
  forge(more, [](json& r) { r["losses"][0] = 0.5; });
  EXPECT_EQ(verify("forged"), kFailed) << out_ << err_;
  EXPECT_NE(out_.find("losses"), std::string::npos) << out_;
  forge(first, [](json& r) { r["rate"] = 0.5; });
  EXPECT_EQ(verify("forged"), kFailed) << out_ << err_;
  forge(first, [](json& r) { r["work"][1]["bytes"]["kept"] = 1; });
  EXPECT_EQ(verify("forged"), kFailed) << out_ << err_;
  forge(more, [](json& r) { r["model"]["depth"] = 1; });
  EXPECT_EQ(verify("forged"), kRefused) << out_ << err_;
  // The checkpoint that the run resumed has changed.
  std::ofstream(path("state.safetensors"), std::ios::app) << "more";
  EXPECT_EQ(verify("more"), kRefused) << out_ << err_;
}

// A short run that must reach a loss; it begins at 3.6 per token.
TEST_F(TrainCommand, LearnsByOurCpuKernels) {
  auto plugin = testing::real_plugin("lammps_jax_pjrt_cpu");
  if (testing::is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
  if (auto there = cpu::ffi_handlers(); !there) {
    GTEST_SKIP() << there.error().message;
  }
  const json r = trained({"--spec", "cpu", "--steps", "60", "--rate", "1e-2"});
  EXPECT_EQ(r["spec"], "cpu");
  EXPECT_EQ(r["slots"]["attention"], "cpu");
  EXPECT_EQ(r["compiles"], 1);
  EXPECT_EQ(r["tiles_run"], r["tiles_planned"]);
  EXPECT_NE(r["plugin"]["file"].get<std::string>().find("lammps_jax_pjrt_cpu"),
            std::string::npos);
  EXPECT_GT(r["losses"].front(), 3.5);
  EXPECT_LT(r["losses"].back(), 0.5);
  refuses({"--spec", "cpu", "--plugin", "xla_cpu_pjrt"},
          "as lammps_jax_pjrt_cpu does, found");
}

// The same on a mesh: resumed runs agree to the bit, and the program states the
// sharding of its arrays.
TEST_F(TrainCommand, LearnsOnAMesh) {
  if (!has_plugin()) GTEST_SKIP() << "no plugins for the CPU";
  const std::vector<std::string> on = {"--mesh", "data=2,head=2", "--rate",
                                       "1e-2"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), on.begin(), on.end());
    return more;
  };
  const json r =
      trained(with({"--steps", "60", "--checkpoint", path("whole.safetensors"),
                    "--save-program", path("step.mlir"), "--every", "20"}));
  EXPECT_EQ(r["mesh"], "data=2,head=2");
  EXPECT_EQ(r["compiles"], 1);
  EXPECT_EQ(r["tiles_run"], r["tiles_planned"]);
  EXPECT_GT(r["losses"].front(), 3.5);
  EXPECT_LT(r["losses"].back(), 0.5);
  program({"audit", path("step.mlir"), "--json"});
  ASSERT_EQ(code_, kOk) << err_;
  EXPECT_EQ(json::parse(out_)["fingerprint"], r["specs"]);

  train(with({"--steps", "60", "--checkpoint", path("again.safetensors")}));
  ASSERT_EQ(code_, kOk) << err_;
  EXPECT_NE(out_.find("mesh       data=2,head=2: 1 rows of 128 tokens and 2 of "
                      "4 heads on each device\n"),
            std::string::npos)
      << out_;
  EXPECT_EQ(*read_file(path("again.safetensors"), 1 << 24),
            *read_file(path("whole.safetensors"), 1 << 24));
  const json one =
      trained({"--steps", "62", "--resume", path("whole.safetensors")});
  EXPECT_EQ(one["first_step"], 61);
  EXPECT_TRUE(one["mesh"].is_null() && one["specs"].is_null());
}

// Without --rows each device along the axis data has one row.
TEST_F(TrainCommand, TakesAParquetFileAndARowForEachDevice) {
  if (!has_plugin()) GTEST_SKIP() << "no plugins for the CPU";
  if (auto found = data::arrow_component(); !found) {
    GTEST_SKIP() << found.error().message;
  }
  program({"pack", path("documents.jsonl"), "--tokens", "128", "-o",
           path("rows.parquet")});
  ASSERT_EQ(code_, kOk) << err_;
  program({"train", "--data", path("rows.parquet"), "--model",
           path("model.json"), "--spec", "xla", "--mesh", "data=2,seq=2",
           "--steps", "3", "--tile", "32x32", "--cache", path("cache")});
  ASSERT_EQ(code_, kOk) << err_;
  EXPECT_NE(out_.find("mesh       data=2,seq=2: 1 rows of 64 tokens"),
            std::string::npos)
      << out_;
  EXPECT_NE(out_.find("tokens/s"), std::string::npos) << out_;
}

// Tokens are placed so that work is even. The run computes its ceilings and
// records them in the receipt.
TEST_F(TrainCommand, ExchangesTilesOfARow) {
  if (!has_plugin()) GTEST_SKIP() << "no plugins for the CPU";
  const json all = trained({"--steps", "2", "--mesh", "seq=2"});
  EXPECT_EQ(all["exchange"]["kind"], "gather");
  EXPECT_EQ(all["exchange"]["balance"], "contiguous");
  EXPECT_EQ(all["exchange"]["sent"], all["exchange"]["all_gather"]);
  train({"--steps", "2", "--mesh", "seq=2", "--balance", "tasks", "--work",
         "partial=2", "--receipt", path("some")});
  ASSERT_EQ(code_, kOk) << err_;
  EXPECT_NE(
      out_.find("exchange   rounds, balance tasks, work partial=2,full=1, "
                "ceilings 'rows="),
      std::string::npos)
      << out_;
  EXPECT_NE(out_.find("where gathering sends"), std::string::npos) << out_;
  const json some = json::parse(*read_file(path("some"), 1 << 20));
  EXPECT_EQ(some["exchange"]["kind"], "rounds");
  EXPECT_EQ(some["compiles"], 1);
  EXPECT_EQ(some["tiles_run"], some["tiles_planned"]);
  EXPECT_LE(some["exchange"]["tiles_max_over_mean"],
            all["exchange"]["tiles_max_over_mean"]);
  TrainOptions o;
  o.model = *parse_model_config(*read_file(path("model.json"), 1 << 20));
  o.spec = *find_layer_spec("xla");
  o.rows = 2;
  o.tokens = 128;
  o.tile = {32, 32};
  o.mesh = *parse_mesh("seq=2");
  o.xla.cache_folder = path("cache");
  auto trainer = Trainer::open(o);
  auto rows = data::RowFiles::open(path("rows"));
  ASSERT_TRUE(trainer && rows);
  const auto apart = testing::apart_by_last_bits(
      *trainer, o.model, {*rows->take(0, 2), *rows->take(2, 2)},
      {.learning_rate = 3e-4});
  EXPECT_NEAR(some["losses"][1].get<double>(), all["losses"][1].get<double>(),
              apart[1].loss);
  EXPECT_EQ(program({"receipt", "verify", path("some")}), kOk) << out_ << err_;

  refuses({"--exchange", "rounds"}, "goes with an axis seq");
  refuses({"--mesh", "seq=2", "--exchange", "gather", "--balance", "rows"},
          "a balance goes with the exchange rounds or ragged, found gather");
  refuses({"--mesh", "seq=2", "--balance", "fair"},
          "balance must be contiguous, headtail, rows or tasks, found 'fair'");
  refuses({"--mesh", "seq=2", "--spec", "cpu", "--exchange", "rounds"},
          "an exchange of rounds is of the specs xla and tpu, found cpu");
  refuses({"--mesh", "seq=2", "--ceilings", "kv=0"}, "may send 0 tiles, found");
}

TEST_F(TrainCommand, RefusesBadInput) {
  refuses({"--steps", "0"}, "--steps");
  refuses({"--max-compiles", "-1"}, "--max-compiles");
  refuses({"--spec", "cudnn"}, "a spec must be one of reference, xla");
  refuses({"--dtype", "f16"}, "--dtype must be f32 or bf16");
  refuses({"--dtype", "f8e4m3"},  // no device here has it
          "[cli] --dtype must be f32 or bf16, found 'f8e4m3'");
  program({"train", "--data", path("rows"), "--tile", "32x32x32"});
  EXPECT_NE(err_.find("--tile must read QxKV"), std::string::npos) << err_;
  refuses({"--rate", "-1"}, "--rate");
  for (const std::string none : {"1e39", "1e-320"}) {
    refuses({"--rate", none},
            "--rate must be a number that float32 holds, "
            "found '" +
                none + "'");
  }
  refuses({"--weight-decay", "-1"},
          "--weight-decay must be a finite number of at least 0, found '-1'");
  refuses({"--weight-decay", "1e39"}, "weight decay at least 0, found");
  refuses({"--every", "2"}, "--every goes with --checkpoint");
  refuses({"--resume", path("nothing")}, "nothing");
  refuses({"--receipt", path("model.json")},
          "each file must have a name of its own, found '" +
              path("model.json") + "' twice");
  refuses({"--checkpoint", path("state.txt")},
          "[cli] --checkpoint must end in .safetensors, found '" +
              path("state.txt") + "'");
  refuses({"--picture", path("loss.png")},
          "[cli] --picture must end in .svg, found '" + path("loss.png") + "'");
  std::ofstream(path("state.safetensors")) << "no checkpoint";
  const std::string in_state = " (in '" + path("state.safetensors") + "')\n";
  refuses({"--resume", path("state.safetensors")}, "[safetensors]");
  refuses({"--resume", path("state.safetensors")}, in_state);
  std::ofstream(path("model.json")) << R"({"depth": 3})";
  refuses({}, "[model] a model has no field of that name, found 'depth' (in '" +
                  path("model.json") + "')\n");
  std::ofstream(path("rows/rows-00001.safetensors")) << "cut";
  std::ofstream(path("model.json")) << "{}";
  refuses({}, "safetensors");
}

TEST_F(TrainCommand, SaysWhatIsNoRows) {
  std::ofstream(path("empty"));
  std::ofstream(path("short")) << "cut";
  for (const char* name : {"documents.jsonl", "empty", "short"}) {
    program({"train", "--data", path(name)});
    EXPECT_EQ(code_, kRefused);
    EXPECT_EQ(err_,
              "tessera: [data] rows must be packed, as `tessera pack` makes "
              "them, found none in '" +
                  path(name) + "'\n");
  }
}

// No output may be written into a folder of rows, by any path.
TEST_F(TrainCommand, WritesNothingAmongItsRows) {
  namespace fs = std::filesystem;
  const std::string row = path("rows/rows-00000.safetensors");
  const std::string before = *read_file(row, 1 << 24);
  const auto files = [&] {
    return std::distance(fs::directory_iterator(path("rows")),
                         fs::directory_iterator());
  };
  const auto many = files();
  fs::create_directory_symlink(path("rows"), path("way"));
  fs::create_symlink(row, path("link.safetensors"));
  for (const auto& [flag, name] :
       {std::pair("--checkpoint", "rows/rows-00000.safetensors"),
        std::pair("--checkpoint", "rows/new.safetensors"),
        std::pair("--checkpoint", "rows/../rows/new.safetensors"),
        std::pair("--checkpoint", "way/new.safetensors"),
        std::pair("--checkpoint", "link.safetensors"),
        std::pair("--receipt", "rows/rows-00001.safetensors"),
        std::pair("--save-program", "rows/step.mlir"),
        std::pair("--picture", "way/loss.svg")}) {
    const std::string why = fmt::format(
        "[cli] {} must lie outside of --data, found '{}'", flag, path(name));
    refuses({"--steps", "1", flag, path(name)}, why);
    program({"train", "--data", path("rows/"), flag, path(name)});
    EXPECT_EQ(code_, kRefused);
    EXPECT_NE(err_.find(why), std::string::npos) << err_;
  }
  EXPECT_EQ(*read_file(row, 1 << 24), before);
  EXPECT_EQ(files(), many);
  // Rows in another place are not overwritten either.
  const std::string elsewhere = path("elsewhere.safetensors");
  fs::rename(row, elsewhere);
  fs::create_symlink(elsewhere, row);
  refuses({"--steps", "1", "--checkpoint", elsewhere},
          "[cli] each file must have a name of its own, found '" + elsewhere +
              "' for '" + row + "'");
  EXPECT_EQ(*read_file(elsewhere, 1 << 24), before);
}

// Also in a row that the first step does not use, and before a plugin is
// loaded.
TEST_F(TrainCommand, RefusesWhatTheModelHasNot) {
  std::ofstream(path("model.json"))
      << R"({"vocab": 60, "layers": 1, "width": 8})";
  pack_documents(
      6, [](int) { return 128; },
      [](int d, int i) { return d == 0 && i == 7 ? 60 : 59; }, 128, "late",
      {"--rows-per-file", "2"});
  program({"train", "--data", path("late"), "--model", path("model.json"),
           "--steps", "1", "--plugin", path("none.so"), "--rows", "2"});
  EXPECT_EQ(code_, kRefused);
  EXPECT_EQ(err_,
            "tessera: [train] input_ids must be 0 to 59, as the model has ids, "
            "found 60 for row 2, token 7 (in '" +
                path("late") + "')\n");
}

// Under any name of the file. Paths are checked before the checkpoint's
// content.
TEST_F(TrainCommand, MayWriteOverWhatItGoesOnFrom) {
  std::filesystem::copy_file(path("rows/rows-00000.safetensors"),
                             path("state.safetensors"));
  program({"train", "--data", path("rows"), "--model", path("model.json"),
           "--rows", "2", "--resume", path("state.safetensors"), "--checkpoint",
           path("./state.safetensors")});
  EXPECT_EQ(code_, kRefused);
  EXPECT_TRUE(err_.ends_with(" (in '" + path("state.safetensors") + "')\n"))
      << err_;
}

TEST_F(TrainCommand, SaysItsPrecision) {
  if (!has_plugin()) GTEST_SKIP() << "no plugins for the CPU";
  const json told = trained({"--steps", "1", "--dtype", "bf16", "--checkpoint",
                             path("state.safetensors")});
  EXPECT_EQ(told["precision"]["products"], "BF16");
  EXPECT_EQ(told["precision"]["attention"], "BF16");
  for (const char* exact : {"softmax", "norms", "residual", "loss", "gradients",
                            "parameters", "moments"}) {
    EXPECT_EQ(told["precision"][exact], "F32") << exact;
  }
  const auto bytes = read_file(path("state.safetensors"), 1 << 24);
  ASSERT_TRUE(bytes);
  auto state = parse_safetensors(*bytes);
  ASSERT_TRUE(state) << state.error().message;
  EXPECT_EQ(json::parse(state->metadata.find("precision")->second),
            told["precision"]);
  train({"--steps", "2", "--dtype", "bf16", "--resume",
         path("state.safetensors")});
  EXPECT_NE(out_.find("precision  BF16: products, attention; F32: softmax, "),
            std::string::npos)
      << out_;
}

}  // namespace
}  // namespace tessera::cli
