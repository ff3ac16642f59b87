// tests/bad_input_test.cc: bad input through the command line: each case with
// its exact message, exit code 2, and nothing written.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/npy.h"
#include "base/safetensors.h"
#include "base/shape.h"
#include "tests/program.h"

namespace tessera::cli {
namespace {

using testing::Arguments;
using testing::run_tessera;

struct Case {
  Arguments arguments;  // {DIR} is a folder with the files below
  std::string message;  // first line of stderr, after "tessera: "
  // `bench <command>` stands for the program `tessera-bench <command>`.
  bool is_bench() const {
    return arguments.size() > 1 && arguments[0] == "bench";
  }
};

// `tessera plan --q-len 64 --mask <mask>` and more arguments.
Arguments plan(const std::string& mask, Arguments more = {}) {
  Arguments a = {"plan", "--q-len", "64", "--mask", mask};
  a.insert(a.end(), more.begin(), more.end());
  return a;
}

// `tessera run --q-len 64 --mask causal` and more arguments.
Arguments attend(Arguments more) {
  Arguments a = {"run", "--q-len", "64", "--mask", "causal"};
  a.insert(a.end(), more.begin(), more.end());
  return a;
}

std::vector<Case> cases() {
  return {
#include "tests/bad_input_cases.inc"
  };
}

std::string with_folder(std::string text, const std::string& folder) {
  for (size_t at; (at = text.find("{DIR}")) != std::string::npos;) {
    text.replace(at, 5, folder);
  }
  return text;
}

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

// Inputs of a run: consistent, except for what a case changes.
struct Inputs {
  std::map<std::string, std::vector<int64_t>> shapes = {
      {"q", {1, 2, 3, 8}}, {"k", {1, 2, 3, 8}}, {"v", {1, 2, 3, 8}}};
  std::map<std::string, Dtype> dtypes;
};

void write_inputs(const std::string& path, const Inputs& inputs) {
  const std::string zeros(1 << 10, '\0');
  Safetensors file;
  for (const auto& [name, shape] : inputs.shapes) {
    const auto it = inputs.dtypes.find(name);
    const Dtype dtype = it == inputs.dtypes.end() ? Dtype::f32 : it->second;
    const auto size =
        static_cast<size_t>(*element_count(shape) * byte_width(dtype));
    file.tensors[name] = {dtype, shape,
                          std::string_view(zeros).substr(0, size)};
  }
  write(path, *write_safetensors(file));
}

void write_run_files(const std::string& folder) {
  const std::string end = ".safetensors";
  write_inputs(folder + "/inputs" + end, {});
  Inputs i;
  i.shapes["q"] = {2, 3, 8};
  write_inputs(folder + "/three_dims" + end, i);
  i = {};
  i.shapes.erase("v");
  write_inputs(folder + "/no_v" + end, i);
  i = {};
  i.shapes["k"] = {1, 2, 3, 9};
  write_inputs(folder + "/wrong_k" + end, i);
  i = {};
  i.dtypes["v"] = Dtype::bf16;
  write_inputs(folder + "/wrong_dtype" + end, i);
  i = {};
  i.dtypes["q"] = Dtype::i32;
  write_inputs(folder + "/integers" + end, i);
  i = {};
  i.shapes["sink_logits"] = {3};
  write_inputs(folder + "/wrong_sinks" + end, i);
  i = {};
  i.shapes["mask"] = {3};
  write_inputs(folder + "/unknown" + end, i);
}

// Picks of 64 queries: one file has two groups of one pick, the last of which
// is 8; the other has one group that picks block 0 twice.
void write_topk_files(const std::string& folder) {
  std::vector<int32_t> picks(128, 0);
  const std::vector<int64_t> one_group = {64, 2}, two_groups = {64, 2, 1};
  write(folder + "/topk_twice.npy", *write_npy(one_group, picks));
  picks.back() = 8;
  std::string bytes = *write_npy(two_groups, picks);
  write(folder + "/topk.npy", bytes);
  bytes.replace(bytes.find("<i4"), 3, "<f4");
  write(folder + "/topk_float.npy", bytes);
}

// Tables of one predicted row, except for what a case changes.
void write_gate_files(const std::string& folder) {
  using nlohmann::json;
  const auto table = [&](const char* name, const char* key, const json& value) {
    json row = json::parse(R"({"kernel": "mosaic/forward", "lane": "mosaic",
        "basis": "predicted", "machine": null, "generation": "v6e",
        "class": "plain causal", "mask": "causal", "direction": "forward",
        "dtype": "bf16", "q_len": 64, "kv_len": 64, "heads": 8, "kv_heads": 8,
        "head_dim": 128, "v_head_dim": 128, "softcap": 0, "density": 1,
        "kernel_ms": null, "plain_ms": null, "kernel_cycles": 100,
        "plain_cycles": 200, "error_bar": 1.28, "plain": "dense", "factor": 2,
        "judgement": "passed", "error": 0.5, "shape_per_step": false,
        "verdict": "experimental", "why": ""})");
    row[key] = value;
    write(folder + "/gate_" + name + ".json",
          json({{"schema", 3}, {"rows", {row}}}).dump());
  };
  write(folder + "/gate_old.json", R"({"schema": 2, "rows": []})");
  write(folder + "/gate_empty.json", R"({"schema": 3, "rows": []})");
  write(folder + "/gate_plugin.json",
        R"({"schema": 3, "plugin": 7, "rows": []})");
  write(folder + "/gate_quick.json",
        R"({"schema": 3, "quick": "yes", "rows": []})");
  table("no_mask", "mask", "");
  table("no_class", "class", "other");
  table("no_cycles", "kernel_cycles", 0);
  table("bar", "error_bar", 0.9);
  table("no_bar", "error_bar", nullptr);
  table("ms", "kernel_ms", 1);
  table("generation", "generation", "v9");
  table("verdict", "verdict", "promote");
  table("tile", "tile", json::array({512}));
  table("tile_words", "tile", "512x512");
  table("small_tile", "tile", json::array({4, 512}));
}

void write_files(const std::string& folder) {
  std::filesystem::create_directories(folder);
  write(folder + "/empty.txt", "");
  write(folder + "/words.txt", "10\nten\n");
  write(folder + "/long.txt", "60\n5\n");
  write(folder + "/two_rows.txt", "10\n\n20\n");
  write(folder + "/prompts.jsonl",
        "{\"input_ids\": [7, 8, 9]}\n{\"input_ids\": [7, 8, 1]}\n");
  write(folder + "/not.npy", "\x93NUMPY\x01");
  write(folder + "/not.safetensors", "12345678");
  write(folder + "/not.plan", "hello");
  write(folder + "/unknown.json", R"({"mask": "full", "q_lne": 64})");
  write(folder + "/dropout.json", R"({"mask": "full", "dropout": 0.1})");
  write(folder + "/float.json", R"({"mask": "full", "q_len": 64.5})");
  write(folder + "/twice.json", R"({"q_len": 64, "q_len": 65})");
  write(folder + "/broken.json", R"({"q_len": )");
  write(folder + "/array.json", "[]");
  write(folder + "/whole.json", R"({"mask": "full", "q_len": 64})");
  write_run_files(folder);
  write_topk_files(folder);
  write_gate_files(folder);
}

TEST(BadInput, HasItsMessageAndWritesNothing) {
  const std::string folder =
      ::testing::TempDir() + "tessera_bad_input_" + std::to_string(getpid());
  write_files(folder);
  const std::string out = folder + "/out.plan";
  const std::string receipt = folder + "/out.json";
  size_t count = 0;
  for (const Case& c : cases()) {
    Arguments arguments;
    for (const std::string& a : c.arguments) {
      arguments.push_back(with_folder(a, folder));
    }
    if (arguments.size() > 0 && arguments[0] == "plan") {
      arguments.insert(arguments.end(), {"-o", out});
    } else if (arguments.size() > 0 && arguments[0] == "run") {
      arguments.insert(arguments.end(),
                       {"--outputs", out, "--receipt", receipt});
    }
    ::testing::internal::CaptureStderr();
    ::testing::internal::CaptureStdout();
    if (c.is_bench()) arguments.erase(arguments.begin());
    const int code =
        c.is_bench() ? testing::run_bench(arguments) : run_tessera(arguments);
    const std::string said = ::testing::internal::GetCapturedStderr();
    const std::string printed = ::testing::internal::GetCapturedStdout();
    const std::string line = ::testing::PrintToString(c.arguments);
    EXPECT_EQ(said.substr(0, said.find('\n')),
              (c.is_bench() ? "tessera-bench: " : "tessera: ") +
                  with_folder(c.message, folder))
        << line;
    EXPECT_EQ(code, 2) << line;
    EXPECT_EQ(printed, "") << line;
    EXPECT_FALSE(std::filesystem::exists(out)) << line;
    EXPECT_FALSE(std::filesystem::exists(receipt)) << line;
    ++count;
  }
  EXPECT_GE(count, 60u);
  std::filesystem::remove_all(folder);
}

TEST(BadInput, PointsAtTheColumn) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run_tessera(plan("causal & wndow(3, 0)")), 2);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("\n  causal & wndow(3, 0)\n           ^\n"),
            std::string::npos)
      << said;
}

TEST(BadInput, IsOneJsonObjectWithJson) {
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(run_tessera(plan("causal &", {"--json"})), 2);
  ::testing::internal::GetCapturedStderr();
  const std::string printed = ::testing::internal::GetCapturedStdout();
  EXPECT_EQ(printed,
            "{\n  \"error\": {\n    \"column\": 9,\n    \"message\": \"[mask] "
            "expected an atom, '!' or '(', found the end at column 9\"\n  "
            "}\n}\n");
}

}  // namespace
}  // namespace tessera::cli
