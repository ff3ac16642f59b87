// cli/train/compile_only_test.cc: `tessera train --compile-only`, and the spec
// tpu on a machine without a TPU.
#include "cli/train/compile_only.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

#include "base/child.h"
#include "base/files.h"
#include "cli/train/flags.h"
#include "cli/train/settings.h"
#include "model/mesh.h"
#include "model/step_plan.h"
#include "pjrt/locate.h"
#include "pjrt/tpu_here.h"
#include "tests/packed_program.h"
#include "tests/plugins.h"
#include "tests/random_case.h"
#include "tests/stablehlo_shards.h"

namespace tessera::cli {
namespace {

using nlohmann::json;
using testing::Arguments;

// Rows of 256 tokens, each one document.
class TrainCompileOnly : public testing::PackedProgram {
 protected:
  void SetUp() override {
    pack_documents(
        3, [](int) { return 256; }, 256);
    std::ofstream(file("model.json"))
        << R"({"vocab": 61, "width": 32, "heads": 2, "kv_heads": 1,
               "head_dim": 128, "mlp_width": 48, "windows": [70, 0]})";
  }

  Arguments asked(const Arguments& more) {
    Arguments out = {"train",
                     "--data",
                     file("rows"),
                     "--model",
                     file("model.json"),
                     "--tile",
                     "256x128",
                     "--lowering-reason",
                     "few tokens"};
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  void refuses(const Arguments& more, const std::string& why) {
    program(asked(more));
    EXPECT_EQ(code_, kRefused);
    EXPECT_EQ(err_, "tessera: " + why + "\n");
    EXPECT_FALSE(std::filesystem::exists(file("step.mlir")));
  }

  // A plugin reads its dump folder once per process, when it loads.
  json child(Arguments more) {
    const std::string command = more[0];
    more.insert(more.begin(), TESSERA_PROGRAM);
    more.push_back("--json");
    auto ran = run_child(more, {{"TMPDIR", folder_.path()}}, 300);
    EXPECT_TRUE(ran.ok()) << ran.error().message;
    if (!ran) return {};
    EXPECT_EQ(ran->exit_code, 0) << ran->err;
    testing::expect_listed(command, ran->out);
    return json::parse(ran->out, nullptr, false);
  }
};

// No time of a backward pass, of documents or of our kernels is known on any
// chip, so no step's cycles are called calibrated.
TEST(TrainCycles, AreNotCalibrated) {
  model::AheadReport r;
  r.gigahertz = 1.75;
  r.attention = {{"causal & documents", 1, 14024.0, 35335.0}};
  r.target = "v6e:1x1";
  const std::string programs =
      "another kernel's forward passes without documents or softcap";
  EXPECT_TRUE(attention_text(r, 1).starts_with(
      "attention  49359 cycles predicted (known of " + programs +
      ") for the first step's rows, at 1.75 GHz (assumed)\n"))
      << attention_text(r, 1);
  EXPECT_EQ(attention_json(r)["calibrated"], false);
  EXPECT_EQ(attention_json(r)["calibrated_on"], programs);
  r.target = "v5e:2x2";
  EXPECT_TRUE(attention_text(r, 4).starts_with(
      "attention  49359 cycles predicted (not calibrated) for the first step's "
      "rows on the slowest chip, at 1.75 GHz (assumed)\n"))
      << attention_text(r, 4);
  EXPECT_EQ(attention_json(r)["calibrated"], false);
  EXPECT_EQ(attention_json(r)["calibrated_on"], json());
}

TEST_F(TrainCompileOnly, SaysWhatAStepTakes) {
  TESSERA_NEEDS_PLUGINS();
  testing::look_in_venv();
  const auto plugin = pjrt::find_plugin("libtpu");
  if (testing::is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
  const json r =
      child(asked({"--spec", "tpu", "--dtype", "bf16", "--recompute",
                   "--compile-only", "--save-program", file("step.mlir")}));
  ASSERT_TRUE(r.is_object());
  EXPECT_EQ(r["compiled_only"], true);
  EXPECT_EQ(r["target"], "v6e:1x1");
  EXPECT_EQ(r["slots"]["attention"], "mosaic");
  EXPECT_EQ(r["lowering"]["reason"], "few tokens");
  EXPECT_EQ(r["lowering"]["factor"], 2.0);
  ASSERT_EQ(r["work"].size(), 5U);
  EXPECT_EQ(r["work"][2]["slot"], "attention");
  EXPECT_GT(r["work"][2]["bytes"]["kept"], 0);
  EXPECT_GE(r["bytes"]["alias"], 12 * r["parameters"].get<int64_t>());
  EXPECT_GE(r["bytes"]["argument"], r["bytes"]["alias"]);
  EXPECT_GT(r["bytes"]["temporary"], 0);
  const json& attention = r["attention"];
  EXPECT_EQ(attention["cycles_from"], "predicted");
  EXPECT_EQ(attention["calibrated"], false);
  EXPECT_TRUE(attention["calibrated_on"].is_string());
  ASSERT_EQ(attention["layers"].size(), 2U);
  const json& first = attention["layers"][0];
  const json& second = attention["layers"][1];
  EXPECT_EQ(first["mask"], "causal & documents & window(70, 0)");
  EXPECT_EQ(second["mask"], "causal & documents");
  EXPECT_EQ(second["forward_runs"], 2);
  double sum = 0;
  for (const json& layer : attention["layers"]) {
    sum += 2 * layer["forward_cycles"].get<double>() +
           layer["backward_cycles"].get<double>();
  }
  EXPECT_EQ(attention["cycles"], sum);
  // The kernels are those of lane mosaic and take the same cycles as alone. In
  // the step, a backward loop of two trips stalls 3 cycles longer.
  const std::string step = *read_file(file("step.mlir"), 1 << 28);
  for (const bool backward : {false, true}) {
    Arguments alone = {"--mask",
                       "causal & documents",
                       "--q-len",
                       "256",
                       "--docs",
                       "lengths:256",
                       "--heads",
                       "2",
                       "--kv-heads",
                       "1",
                       "--tile",
                       "256x128",
                       "--lowering-reason",
                       "few tokens"};
    if (backward) alone.push_back("--backward");
    Arguments emit = alone;
    emit.insert(emit.begin(), "compile");
    emit.insert(emit.end(), {"--target", "v6e:1x1", "--no-compile", "--emit",
                             file("kernel.mlir")});
    child(std::move(emit));
    const std::string kernel = *read_file(file("kernel.mlir"), 1 << 28);
    const size_t begin = kernel.find("backend_config = ");
    ASSERT_NE(begin, std::string::npos);
    const size_t end = kernel.find("\", ", begin);
    ASSERT_GT(end - begin, 10000U);
    EXPECT_NE(step.find(kernel.substr(begin, end - begin)), std::string::npos);
    alone.insert(alone.begin(), "schedule");
    const double cycles = child(alone)["kernels"][0]["cycles"];
    EXPECT_NEAR(second[backward ? "backward_cycles" : "forward_cycles"], cycles,
                backward ? 2 * 3 : 0);
  }
}

// Rows are divided among chips, and so are the parameters of heads and MLP.
TEST_F(TrainCompileOnly, SaysWhatAStepTakesOfEachChip) {
  TESSERA_NEEDS_PLUGINS();
  testing::look_in_venv();
  const auto plugin = pjrt::find_plugin("libtpu");
  if (testing::is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
  std::ofstream(file("model.json"))
      << R"({"vocab": 61, "width": 32, "heads": 4, "kv_heads": 2,
             "head_dim": 128, "mlp_width": 48, "windows": [70, 0]})";
  // One row for each chip, whose schedule is reported.
  struct Case {
    const char *spec, *mesh, *rows, *target;
  };
  const Case cases[] = {{"xla", "data=2,head=2", "2", "v6e:2x2"},
                        {"tpu", "data=4", "4", "v6e:2x2"},
                        {"tpu", "data=2,head=2", "2", "v6e:2x2"},
                        {"tpu", "data=8,head=2", "8", "v6e:4x4"},
                        {"xla", "data=4,head=2,seq=2", "4", "v6e:4x4"}};
  for (size_t i = 0; i < std::size(cases); ++i) {
    if (!testing::takes_case(i, std::size(cases))) continue;
    const auto& [spec, on, rows, target] = cases[i];
    SCOPED_TRACE(std::string(spec) + " " + on);
    const json r =
        child(asked({"--spec", spec, "--dtype", "bf16", "--rows", rows,
                     "--mesh", on, "--compile-only", "--target", target,
                     "--save-program", file("step.mlir")}));
    ASSERT_TRUE(r.is_object());
    EXPECT_EQ(r["mesh"], on);
    EXPECT_EQ(r["target"], target);
    const Mesh mesh = *parse_mesh(on);
    int64_t state = 0;
    const auto parameters = *model_parameters(
        *parse_model_config(*read_file(file("model.json"), 1 << 10)),
        *find_layer_spec(spec));
    for (const ModelParameter& p : parameters) {
      state += 12 * p.size() / (model::is_split(mesh, p) ? 2 : 1);
    }
    EXPECT_EQ(state < 12 * r["parameters"].get<int64_t>(), mesh.has("head"));
    EXPECT_GE(r["bytes"]["alias"], state);
    // The arguments are the state and a part of the batch, 4 KB a row.
    EXPECT_GE(r["bytes"]["argument"], r["bytes"]["alias"]);
    program({"audit", file("step.mlir"), "--json"});
    ASSERT_EQ(code_, kOk) << err_;
    const json audit = json::parse(out_);
    EXPECT_EQ(audit["fingerprint"], r["specs"]);
    int64_t part = 0, of_state = 0;
    for (const json& a : audit["arguments"]) {
      part += a["bytes"].get<int64_t>();
      of_state += a["name"] != "all_rates" && a["dtype"] == "f32"
                      ? a["bytes"].get<int64_t>()
                      : 0;
    }
    EXPECT_EQ(of_state, state) << audit["arguments"].dump();
    // The compiler pads small arrays.
    EXPECT_GE(r["bytes"]["argument"], part);
    EXPECT_EQ(r["attention"].is_null(), spec[0] == 'x');
    if (r["attention"].is_null()) continue;
    double sum = 0;
    for (const json& layer : r["attention"]["layers"]) {
      sum += layer["forward_cycles"].get<double>() +
             layer["backward_cycles"].get<double>();
    }
    EXPECT_GT(sum, 0);
    EXPECT_EQ(r["attention"]["cycles"], sum);
    EXPECT_TRUE(r["attention"]["exchange"].is_null());
  }
}

// A row over four chips. The compiled program too sends only what was planned:
// tiles, their gradients back, and sums of gradients. The cycles of the kernels
// are known for any number of kernels in a pass.
TEST_F(TrainCompileOnly, ExchangesTilesBetweenChips) {
  TESSERA_NEEDS_PLUGINS();
  testing::look_in_venv();
  const auto plugin = pjrt::find_plugin("libtpu");
  if (testing::is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
  std::ofstream(file("model.json"))
      << R"({"vocab": 61, "width": 32, "heads": 2, "kv_heads": 1,
             "head_dim": 128, "mlp_width": 48, "layers": 1})";
  struct Case {
    const char *spec, *exchange, *balance;
  };
  const Case cases[] = {{"tpu", "rounds", "rows"},
                        {"tpu", "ragged", "tasks"},
                        {"xla", "rounds", "rows"}};
  for (size_t i = 0; i < std::size(cases); ++i) {
    if (!testing::takes_case(i, std::size(cases))) continue;
    const auto& [spec, exchange, balance] = cases[i];
    SCOPED_TRACE(std::string(spec) + " " + exchange);
    const json r = child({"train",
                          "--data",
                          file("rows"),
                          "--model",
                          file("model.json"),
                          "--tile",
                          "128",
                          "--lowering-reason",
                          "few tokens",
                          "--spec",
                          spec,
                          "--dtype",
                          "bf16",
                          "--rows",
                          "3",
                          "--mesh",
                          "seq=4",
                          "--exchange",
                          exchange,
                          "--balance",
                          balance,
                          "--compile-only",
                          "--target",
                          "v6e:2x2",
                          "--save-program",
                          file("step.mlir")});
    ASSERT_TRUE(r.is_object());
    EXPECT_EQ(r["exchange"]["kind"], exchange);
    EXPECT_GT(r["bytes"]["temporary"], 0);
    EXPECT_EQ(r["attention"].is_null(), spec == std::string("xla"));
    if (!r["attention"].is_null()) {
      EXPECT_EQ(r["attention"]["exchange"], "not predicted");
      const json& layer = r["attention"]["layers"].at(0);
      const double forward = layer["forward_cycles"];
      const double backward = layer["backward_cycles"];
      EXPECT_GT(forward, 0);
      EXPECT_GT(backward, forward);
      EXPECT_EQ(r["attention"]["cycles"], forward + backward);
    }
    program({"audit", file("step.mlir"), "--json"});
    ASSERT_EQ(code_, kOk) << err_;
    const json audit = json::parse(out_);
    EXPECT_EQ(audit["fingerprint"], r["specs"]);
    const std::string travels = exchange == std::string("rounds")
                                    ? "collective_permute"
                                    : "ragged_all_to_all";
    std::map<std::string, std::pair<int64_t, int64_t>> planned, found;
    for (const json& c : audit["collectives"]) {
      std::string op = c["op"];
      std::ranges::replace(op, '_', '-');
      ++planned[op].first;
      planned[op].second += c["operand_bytes"].get<int64_t>();
    }
    for (const json& c : r["collectives"]) {
      ++found[c["op"]].first;
      found[c["op"]].second += c["bytes"].get<int64_t>();
    }
    std::string op = travels;
    std::ranges::replace(op, '_', '-');
    EXPECT_GT(planned[op].first, 0);
    EXPECT_EQ(found[op], planned[op]) << r["collectives"];
    // The sums of the loss and the parameters, which the compiler may rewrite.
    for (const auto& [name, of] : found) {
      if (name == op) continue;
      EXPECT_LE(of.first, 2) << name;
    }
    const std::string step = *read_file(file("step.mlir"), 1 << 28);
    int kernels = 0;
    for (size_t at = 0;
         (at = step.find("\"tpu_custom_call\"", at)) != std::string::npos;
         ++at) {
      ++kernels;
    }
    EXPECT_EQ(kernels > 0, spec == std::string("tpu"));
  }
}

TEST_F(TrainCompileOnly, RefusesBadInput) {
  const Arguments tpu = {"--spec", "tpu", "--save-program", file("step.mlir")};
  const auto with = [&](Arguments more) {
    more.insert(more.begin(), tpu.begin(), tpu.end());
    return more;
  };
  refuses(with({"--compile-only", "--dtype", "bf16", "--target", "v6e:2x2"}),
          "[train] a target must have a chip for each device of the step, as "
          "v6e:2x2 has for four, found 'v6e:2x2' for 1");
  refuses(with({"--compile-only", "--picture", file("loss.svg")}),
          "[cli] --compile-only runs no step, found --picture beside it");
  refuses(with({"--target", "v6e:1x1"}),
          "[cli] --target goes with --compile-only, found it alone");
  for (const char* spec : {"tpu", "xla"}) {
    program({"train", "--data", file("rows"), "--model", file("model.json"),
             "--tile", "128", "--spec", spec, "--compile-only",
             "--save-program", file("step.mlir")});
    EXPECT_EQ(code_, kRefused);
    EXPECT_EQ(err_,
              "tessera: [train] a tile below the granule of v6e, 256x256, must "
              "come with a lowering reason, found none for 128x128, which pays "
              "4 times its work\n");
    EXPECT_FALSE(std::filesystem::exists(file("step.mlir")));
  }
  if (pjrt::is_tpu_here()) return;
  refuses(with({"--dtype", "bf16"}),
          "[mosaic] a TPU must be there to run its kernel, found none (to "
          "compile ahead needs none)");
}

// Two test devices claim to be TPUs and run what the kernels compute. Tiles are
// exchanged, and a second run is the same.
TEST_F(TrainCompileOnly, ReceiptsOfAnExchangeAreVerified) {
  TESSERA_NEEDS_PLUGINS();
  testing::look_in_venv();
  const auto real = testing::real_plugin("xla_cpu_pjrt");
  if (testing::is_absent(real)) GTEST_SKIP() << real.error().message;
  std::ofstream(file("model.json"))
      << R"({"vocab": 61, "width": 32, "heads": 2, "kv_heads": 1,
             "head_dim": 128, "mlp_width": 48, "layers": 1})";
  TrainFlags f;
  f.data = file("rows");
  f.model = file("model.json");
  f.spec = "tpu";
  f.dtype = "bf16";
  f.rows = "2";
  f.tile = "128";
  f.lowering_reason = "few tokens";
  f.mesh = "seq=2";
  f.ceilings = "rows=2,steps=8,kv=2";
  auto settings = read_train_flags(f);
  ASSERT_TRUE(settings) << settings.error().message;
  settings->options.tokens = 256;
  auto plain = model::plan_step(settings->options);
  ASSERT_TRUE(plain) << plain.error().message;
  for (model::AttentionPlace& place : plain->shape.places) {
    place.shard_kernels->call = testing::stablehlo_call;
  }
  ASSERT_TRUE(
      write_file(file("plain.backward"), *model::step_program(plain->shape)));
  const auto run = [&](Arguments all) {
    all.insert(all.begin(), TESSERA_PROGRAM);
    all.insert(all.end(), {"--plugin", testing::fake_plugin("tpu"), "--json"});
    const std::string devices = "--xla_force_host_platform_device_count=2";
    auto ran = run_child(all,
                         {{"XLA_FLAGS", devices},
                          {"NPROC", "4"},
                          {"TESSERA_CACHE", "off"},
                          {"TESSERA_TEST_WRAPPED_PLUGIN", (*real)->path()},
                          {"TESSERA_TEST_TPU_PROGRAM", file("plain")}},
                         300);
    EXPECT_TRUE(ran.ok()) << ran.error().message;
    if (!ran) return json();
    EXPECT_EQ(ran->exit_code, kOk) << ran->err << ran->out;
    return json::parse(ran->out, nullptr, false);
  };
  const json r = run({"train",
                      "--data",
                      f.data,
                      "--model",
                      *f.model,
                      "--spec",
                      "tpu",
                      "--dtype",
                      "bf16",
                      "--rows",
                      "2",
                      "--tile",
                      "128",
                      "--lowering-reason",
                      "few tokens",
                      "--mesh",
                      "seq=2",
                      "--ceilings",
                      *f.ceilings,
                      "--steps",
                      "2",
                      "--cache",
                      "off",
                      "--receipt",
                      file("receipt")});
  ASSERT_TRUE(r.is_object());
  EXPECT_EQ(r["exchange"]["kind"], "rounds");
  EXPECT_GT(r["exchange"]["sent"], 0);
  EXPECT_EQ(r["slots"]["attention"], "mosaic");
  EXPECT_EQ(r["compiles"], 1);
  run({"receipt", "verify", file("receipt")});
}

// A CPU plugin has no matrix unit, so a reason is refused.
TEST_F(TrainCompileOnly, AReasonGoesWithATpu) {
  TESSERA_NEEDS_PLUGINS();
  testing::look_in_venv();
  const auto plugin = testing::real_plugin("lammps_jax_pjrt_cpu");
  if (testing::is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
  refuses({"--spec", "xla"},
          "[train] a lowering reason goes with tiles of scores on a TPU, found "
          "one for attention by worklist on another device");
}

}  // namespace
}  // namespace tessera::cli
