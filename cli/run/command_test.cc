// cli/run/command_test.cc: `tessera run` as a user runs it.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "base/bytes.h"
#include "base/files.h"
#include "base/npy.h"
#include "base/safetensors.h"
#include "pjrt/plugin.h"
#include "plan/make_plan.h"
#include "request/random_inputs.h"
#include "tessera/batch.h"
#include "tessera/session.h"
#include "tests/plugins.h"
#include "tests/program.h"
#include "tests/variable.h"

namespace tessera::cli {
namespace {

using nlohmann::json;
using tessera::testing::Arguments;

constexpr int64_t kQueries = 48;
constexpr int64_t kKeys = 64;

class Run : public tessera::testing::Program {
 protected:
  // A small run; sets code_ to its exit code.
  json run(const Arguments& more,
           const Arguments& request = {"--mask", "causal & window(20, 0)",
                                       "--q-len", "48", "--kv-len", "64",
                                       "--tile", "16", "--head-dim", "16",
                                       "--heads", "4", "--kv-heads", "2"}) {
    Arguments a = {"run", "--json"};
    a.insert(a.end(), request.begin(), request.end());
    a.insert(a.end(), more.begin(), more.end());
    program(a);
    return json::parse(out_);
  }

  // "category name" of each span in the file "trace".
  std::set<std::string> spans() const {
    std::set<std::string> out;
    const json trace = json::parse(*read_file(file("trace"), 1 << 24));
    for (const json& e : trace["traceEvents"]) {
      if (e["ph"] != "X") continue;
      out.insert(e["cat"].get<std::string>() + " " +
                 e["name"].get<std::string>());
    }
    return out;
  }

  std::string message(const Arguments& more) {
    const json e = run(more);
    return code_ == 2 ? e["error"]["message"].get<std::string>() : "";
  }
};

class RunLane : public Run,
                public ::testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Each, RunLane, ::testing::Values("cpu", "reference"));

TEST_P(RunLane, PassesItsCheck) {
  for (const char* dtype : {"f32", "bf16", "f16"}) {
    for (const char* layout : {"bhsd", "bshd"}) {
      const json r = run({"--lane", GetParam(), "--backward", "--check",
                          "--sink-logits", "--softcap", "15", "--v-head-dim",
                          "24", "--dtype", dtype, "--layout", layout});
      ASSERT_EQ(code_, 0) << err_ << r;
      EXPECT_EQ(r["check"]["kind"], "full");
      EXPECT_EQ(r["check"]["passed"], true);
      EXPECT_LE(r["check"]["max_bound_ratio"], 1.0);
      EXPECT_EQ(r["check"]["rows"], 2 * 4 * kQueries + 2 * kKeys);
      EXPECT_EQ(r["lane"]["executed"], GetParam());
      EXPECT_EQ(r["shape"]["dtype"], dtype);
    }
  }
}

// Writing a trace changes no bit of the results.
TEST_P(RunLane, TraceShowsTheRunAndChangesNothing) {
  const Arguments common = {"--lane", GetParam(), "--backward", "--check"};
  Arguments with = common;
  with.insert(with.end(), {"--trace", file("trace"), "--outputs", file("out")});
  const json a = run(common), b = run(with);
  ASSERT_EQ(code_, 0) << err_;
  EXPECT_EQ(a["output"], b["output"]);
  EXPECT_EQ(a["plan"], b["plan"]);
  const std::string lane = GetParam();
  std::set<std::string> due = {
      "plan make_plan", "plan bind",  "plan classify",   "plan transpose",
      "plan contract",  "run inputs", "run digest",      "check forward",
      "check backward", "file write", lane + " forward", lane + " backward"};
  if (lane == "cpu") due.insert({"cpu prepare", "worker blocks of keys"});
  std::set<std::string> found = spans();
  EXPECT_TRUE(std::includes(found.begin(), found.end(), due.begin(), due.end()))
      << ::testing::PrintToString(found);
}

// The file has the numbers of each query and the receipt their means; the other
// outputs do not change by a bit.
TEST_P(RunLane, TellsSinkTelemetry) {
  const Arguments request = {"--mask",     "causal & documents",
                             "--q-len",    "48",
                             "--docs",     "lengths:20,28",
                             "--heads",    "4",
                             "--kv-heads", "2",
                             "--head-dim", "16",
                             "--lane",     GetParam()};
  const json off = run({}, request);
  EXPECT_FALSE(off.contains("sink_telemetry"));
  const json on = run({"--sink-telemetry", "3", "--outputs", file("out"),
                       "--receipt", file("r.json")},
                      request);
  ASSERT_EQ(code_, 0) << err_;
  EXPECT_EQ(on["output"], off["output"]);
  const json& told = on["sink_telemetry"];
  EXPECT_EQ(told["first_keys"], 3);
  ASSERT_EQ(told["documents"].size(), 2);
  const std::string bytes = *read_file(file("out"), 1 << 24);
  const auto tensors = parse_safetensors(bytes);
  ASSERT_TRUE(tensors.ok());
  for (const char* name : {"mass", "entropy"}) {
    const auto& tensor = tensors->tensors.at(std::string("sink_") + name);
    EXPECT_EQ(tensor.shape, (std::vector<int64_t>{1, 4, kQueries}));
    std::vector<float> values(4 * kQueries);
    ASSERT_EQ(tensor.bytes.size(), values.size() * 4);
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    for (size_t h = 0; h < 4; ++h) {
      for (const auto& [d, begin, end] :
           {std::tuple(0, 0, 20), std::tuple(1, 20, 48)}) {
        double sum = 0;
        for (int q = begin; q < end; ++q) {
          sum += values[h * kQueries + static_cast<size_t>(q)];
        }
        const json& document = told["documents"][static_cast<size_t>(d)];
        EXPECT_EQ(document["document"], d);
        EXPECT_EQ(document["queries"][h], end - begin);
        EXPECT_EQ(document[name][h], sum / (end - begin));
      }
    }
  }
  // One file may hold inputs and all outputs.
  Safetensors whole = *tensors;
  for (const char* name : {"q", "k", "v"}) {
    whole.tensors[name] = whole.tensors.at("out");
  }
  ASSERT_TRUE(write_file(file("whole"), *write_safetensors(whole)).ok());
  run({"--inputs", file("whole")}, {"--mask", "causal & documents", "--docs",
                                    "lengths:20,28", "--lane", GetParam()});
  EXPECT_EQ(code_, 0) << err_;
  EXPECT_EQ(program({"receipt", "verify", file("r.json")}), 0) << out_ << err_;

  Arguments text = {"run", "--sink-telemetry", "3"};
  text.insert(text.end(), request.begin(), request.end());
  EXPECT_EQ(program(text), 0);
  EXPECT_NE(out_.find("mass on the first 3 keys of each of 2 documents"),
            std::string::npos)
      << out_;
  EXPECT_NE(out_.find("row 0, document 1: mass "), std::string::npos) << out_;
}

// Padding attends if a head's mask names no documents.
TEST_F(Run, SinkTelemetryOfPaddingIsOfNoDocument) {
  const Arguments request = {"--mask",     "causal & documents",
                             "--mask",     "causal",
                             "--q-len",    "64",
                             "--docs",     "lengths:40",
                             "--heads",    "2",
                             "--kv-heads", "2",
                             "--head-dim", "8",
                             "--lane",     "cpu"};
  const json told =
      run({"--sink-telemetry", "4", "--receipt", file("r.json")}, request);
  ASSERT_EQ(code_, 0) << err_;
  const json& documents = told["sink_telemetry"]["documents"];
  ASSERT_EQ(documents.size(), 2) << documents;
  EXPECT_EQ(documents[0]["document"], 0);
  EXPECT_TRUE(documents[1]["document"].is_null());
  EXPECT_EQ(documents[1]["queries"], (json{0, 24}));
  EXPECT_EQ(program({"receipt", "verify", file("r.json")}), 0) << out_ << err_;
}

TEST_F(Run, RefusesSinkTelemetryThatIsNotThere) {
  EXPECT_EQ(message({"--sink-telemetry", "0"}),
            "[cli] --sink-telemetry must be from 1 to 1073741824, found 0");
}

TEST_P(RunLane, LayoutsGiveTheSameDigests) {
  for (const char* dtype : {"f32", "f16"}) {
    const Arguments common = {"--lane", GetParam(), "--backward", "--dtype",
                              dtype};
    Arguments other = common;
    other.insert(other.end(), {"--layout", "bshd"});
    const json a = run(common), b = run(other);
    EXPECT_EQ(a["output"], b["output"]);
    EXPECT_EQ(a["inputs"]["digests"], b["inputs"]["digests"]);
    other.insert(other.end(), {"--seed", "1"});
    EXPECT_NE(a["output"], run(other)["output"]);
  }
}

TEST_P(RunLane, FilesRepeatTheRun) {
  const Arguments request = {"--lane",     GetParam(), "--mask",
                             "causal",     "--layout", "bshd",
                             "--backward", "--tile",   "16"};
  // The arrays drawn from a seed, as a file.
  const json drawn =
      run({"--q-len", "48", "--kv-len", "64", "--heads", "4", "--kv-heads", "2",
           "--head-dim", "16", "--dtype", "bf16", "--sink-logits", "--outputs",
           file("a"), "--batch", "2"},
          request);
  ASSERT_EQ(code_, 0) << err_;
  struct Made {
    const char* name;
    request::Stream stream;
    int64_t heads, tokens;
  };
  Safetensors inputs;
  std::vector<request::Array> arrays;
  arrays.reserve(4);
  for (const Made& m : {Made{"q", request::Stream::q, 4, kQueries},
                        Made{"k", request::Stream::k, 2, kKeys},
                        Made{"v", request::Stream::v, 2, kKeys},
                        Made{"dout", request::Stream::dout, 4, kQueries}}) {
    arrays.emplace_back(Dtype::bf16, request::Layout::bshd, 2, m.heads,
                        m.tokens, 16);
    fill_random(arrays.back().view(), 0, m.stream);
    inputs.tensors[m.name] = {Dtype::bf16, arrays.back().shape(),
                              arrays.back().bytes()};
  }
  std::vector<float> dlse(2 * 4 * kQueries), sinks(4);
  fill_random(dlse, 0, request::Stream::dlse);
  fill_random(sinks, 0, request::Stream::sink_logits);
  inputs.tensors["dlse"] = {
      Dtype::f32, {2, 4, kQueries}, bytes_of(std::span<const float>(dlse))};
  inputs.tensors["sink_logits"] = {
      Dtype::f32, {4}, bytes_of(std::span<const float>(sinks))};
  ASSERT_TRUE(write_file(file("in"), *write_safetensors(inputs)).ok());

  // Shapes, dtype and sink logits come from the file.
  const json read =
      run({"--inputs", file("in"), "--outputs", file("b")}, request);
  ASSERT_EQ(code_, 0) << err_;
  EXPECT_EQ(read["output"], drawn["output"]);
  EXPECT_EQ(read["inputs"]["digests"], drawn["inputs"]["digests"]);
  EXPECT_EQ(read["shape"], drawn["shape"]);
  EXPECT_EQ(read["inputs"]["drawn"], json::array());
  EXPECT_EQ(drawn["inputs"]["drawn"].size(), 6u);
  const std::string a = *read_file(file("a"), 1 << 24);
  EXPECT_EQ(a, *read_file(file("b"), 1 << 24));
  const Safetensors out = *parse_safetensors(a);
  const std::pair<const char*, std::vector<int64_t>> shapes[] = {
      {"out", {2, kQueries, 4, 16}}, {"lse", {2, 4, kQueries}},
      {"dq", {2, kQueries, 4, 16}},  {"dk", {2, kKeys, 2, 16}},
      {"dv", {2, kKeys, 2, 16}},     {"dsink_logits", {4}}};
  EXPECT_EQ(out.tensors.size(), std::size(shapes));
  for (const auto& [name, shape] : shapes) {
    EXPECT_EQ(out.find(name)->shape, shape) << name;
  }
  EXPECT_EQ(out.find("out")->dtype, Dtype::bf16);
  EXPECT_EQ(out.find("lse")->dtype, Dtype::f32);

  // Flags that contradict the file are refused.
  for (const Arguments& wrong : {Arguments{"--q-len", "49"},
                                 {"--heads", "8"},
                                 {"--batch", "1"},
                                 {"--head-dim", "8"},
                                 {"--dtype", "f32"},
                                 {"--kv-heads", "4"},
                                 {"--kv-len", "65"},
                                 {"--layout", "bhsd"}}) {
    Arguments all = {"--inputs", file("in"), "--mask", "causal"};
    all.insert(all.end(), wrong.begin(), wrong.end());
    const json e = run(all, {});
    EXPECT_EQ(code_, 2) << wrong[0];
    EXPECT_TRUE(
        e["error"]["message"].get<std::string>().starts_with("[inputs] "))
        << e;
  }
}

TEST_P(RunLane, NanInputsStillHaveADigest) {
  request::Array q(Dtype::f32, request::Layout::bhsd, 1, 1, 8,
                   8);  // NaN throughout
  const Tensor nans = {Dtype::f32, q.shape(), q.bytes()};
  Safetensors inputs;
  for (const char* name : {"q", "k", "v"}) inputs.tensors[name] = nans;
  ASSERT_TRUE(write_file(file("in"), *write_safetensors(inputs)).ok());
  const json r = run({"--inputs", file("in"), "--check"},
                     {"--mask", "causal", "--lane", GetParam()});
  EXPECT_EQ(code_, 0) << err_ << r;
  EXPECT_EQ(r["output"]["digest"].get<std::string>().size(), 32u);
  EXPECT_EQ(r["check"]["max_error"], 0.0);
}

// For picks of single tokens the keys that tile rows read are counted by pick.
TEST_F(Run, ReceiptCountsWhatTokenPicksRead) {
  constexpr int64_t kTile = 16, kPicks = 3;
  std::vector<int32_t> picks;
  int64_t needed = 0, read = 0;
  std::set<int64_t> keys, tiles;
  for (int64_t q = 0; q < kQueries; ++q) {
    for (int64_t i = 0; i < kPicks; ++i) {
      const int64_t key = (q / 2 * 5 + i * 7) % kKeys;
      picks.push_back(static_cast<int32_t>(key));
      keys.insert(key);
      tiles.insert(key / kTile);
    }
    if (q % kTile != kTile - 1) continue;
    needed += static_cast<int64_t>(keys.size());
    read += static_cast<int64_t>(tiles.size()) * kTile;
    keys.clear();
    tiles.clear();
  }
  const std::vector<int64_t> shape = {kQueries, kPicks};
  ASSERT_TRUE(write_file(file("topk.npy"), *write_npy(shape, picks)).ok());
  for (const char* lane : {"cpu", "reference"}) {
    const json r =
        run({"--lane", lane, "--backward", "--check"},
            {"--mask", "blocks(1)", "--q-len", "48", "--kv-len", "64", "--tile",
             "16", "--head-dim", "16", "--heads", "4", "--kv-heads", "2",
             "--picks", "topk_idxs:" + file("topk.npy")});
    ASSERT_EQ(code_, 0) << err_;
    EXPECT_EQ(r["check"]["passed"], true);
    const json& n = r["routing"];
    EXPECT_EQ(n["needed_keys"], needed);
    EXPECT_EQ(n["read_keys"], read);
    // Two K/V heads share the picks; 16 + 16 numbers of 4 bytes a key.
    EXPECT_EQ(n["extra_bytes"], (read - needed) * 2 * 32 * 4);
    EXPECT_EQ(n["cache_bytes"], kKeys * 2 * 32 * 4);
  }
}

TEST_F(Run, ReceiptIsThatOfThePlan) {
  Request request;
  request.masks = {*parse_mask("causal & window(20, 0)")};
  request.q_len = kQueries;
  request.kv_len = kKeys;
  request.tile = {16, 16};
  const Plan plan = *plan::make_plan(request, {});
  const json r = run({"--receipt", file("r"), "--threads", "1"});
  ASSERT_EQ(code_, 0) << err_;
  EXPECT_EQ(json::parse(*read_file(file("r"), 1 << 20)), r);
  EXPECT_EQ(r["plan"]["digest"], plan_digest(plan));
  EXPECT_EQ(r["contract"],
            make_contract(*BorrowedBatch::make(request, {}))->key);
  const auto active = static_cast<int64_t>(plan.forward.entries.size());
  EXPECT_EQ(r["tiles"]["run"], 4 * active);
  EXPECT_EQ(r["tiles"]["skipped"], 4 * (3 * 4 - active));
  EXPECT_EQ(r["pairs"]["legal"], 4 * plan.legal_pairs[0]);
  EXPECT_GE(r["pairs"]["run"], r["pairs"]["legal"]);
  EXPECT_EQ(r["lane"]["source"], "default");
  EXPECT_EQ(r["threads"], 1);
  EXPECT_EQ(r["check"]["kind"], "none");
  EXPECT_GT(r["gflops"]["useful"], 0.0);
  EXPECT_EQ(r["compiles"], 0);
  EXPECT_TRUE(r["fallback"].is_null());
}

// The request in a receipt is a spec that gives the same plan.
TEST_F(Run, ReceiptHoldsASpec) {
  const json r = run({"--lane", "reference"},
                     {"--mask", "causal & documents", "--q-len", "64", "--tile",
                      "16x32", "--docs", "lognormal:mean=20,seed=4", "--valid",
                      "60", "--head-dim", "8"});
  ASSERT_EQ(code_, 0) << err_;
  ASSERT_TRUE(write_file(file("spec"), r["request"].dump()).ok());
  const json again =
      run({"--lane", "reference"}, {"--spec", file("spec"), "--head-dim", "8"});
  ASSERT_EQ(code_, 0) << err_;
  for (const char* name :
       {"request", "plan", "contract", "facts_digest", "output"}) {
    EXPECT_EQ(again[name], r[name]) << name;
  }
}

TEST_F(Run, SavedPlanIsTheSameRun) {
  const Arguments request = {"--mask",   "causal & window(20, 0)",
                             "--q-len",  "48",
                             "--kv-len", "64",
                             "--tile",   "16"};
  ASSERT_EQ(program({"plan", "-o", file("plan")}, request), 0) << err_;
  const json a = run({"--lane", "reference", "--head-dim", "8"}, request);
  const json b =
      run({"--lane", "reference", "--head-dim", "8"}, {"--plan", file("plan")});
  ASSERT_EQ(code_, 0) << err_;
  EXPECT_EQ(a["output"], b["output"]);
  EXPECT_EQ(a["plan"], b["plan"]);
  EXPECT_EQ(b["plan_file"], file("plan"));
}

TEST_F(Run, OutputsAreCheckedBeforeTheRun) {
  for (const char* flag : {"--receipt", "--outputs", "--trace"}) {
    const json e = run({flag, file("absent/x")});
    EXPECT_EQ(code_, 2);
    EXPECT_EQ(e["error"]["message"],
              "[file] output must lie in a directory that exists, found none "
              "for '" +
                  file("absent/x") + "'");
  }
}

TEST_F(Run, FilesHaveNamesOfTheirOwn) {
  EXPECT_EQ(message({"--receipt", file("x"), "--trace", file("x")}),
            "[cli] each file must have a name of its own, found '" + file("x") +
                "' twice");
  EXPECT_FALSE(std::filesystem::exists(file("x")));
  // Two names of one file are refused too.
  EXPECT_EQ(message({"--receipt", file("x"), "--trace", file("./x")}),
            "[cli] each file must have a name of its own, found '" +
                file("./x") + "' for '" + file("x") + "'");
  run({"--outputs", file("in")});
  ASSERT_EQ(code_, 0) << err_;
  const std::string before = *read_file(file("in"), 1 << 24);
  std::filesystem::create_symlink(file("in"), file("link"));
  for (const char* flag : {"--outputs", "--receipt", "--trace"}) {
    for (const char* name : {"in", "link"}) {
      EXPECT_TRUE(message({"--inputs", file("in"), flag, file(name)})
                      .starts_with("[cli] each file must have a name of its "
                                   "own, found '"))
          << flag << name;
    }
  }
  EXPECT_EQ(*read_file(file("in"), 1 << 24), before);
}

// The trace has the work before the failure, and the error is printed.
TEST_F(Run, TraceOfARunThatFails) {
  EXPECT_EQ(
      message({"--trace", file("trace"), "--max-steps", "1"}).substr(0, 10),
      "[contract]");
  EXPECT_TRUE(spans().contains("plan make_plan"));
  EXPECT_FALSE(spans().contains("cpu forward"));
}

TEST_F(Run, TraceIsTheOnlyFileLeft) {
  run({"--trace", file("trace")});
  EXPECT_EQ(code_, 0) << err_;
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::directory_iterator(folder_.path())) {
    names.push_back(entry.path().filename());
  }
  EXPECT_EQ(names, (std::vector<std::string>{"trace"}));
}

TEST_F(Run, PlanHasATraceToo) {
  const Arguments plan = {"plan", "--mask",  "causal",      "--q-len",
                          "64",   "--trace", file("trace"), "-o"};
  EXPECT_EQ(program(plan, {file("plan")}), 0) << err_;
  EXPECT_TRUE(out_.ends_with("\ntrace       " + file("trace") + "\n")) << out_;
  EXPECT_EQ(program(plan, {file("trace")}), 2);
  EXPECT_EQ(spans(), (std::set<std::string>{
                         "file write", "plan bind", "plan classify",
                         "plan contract", "plan make_plan", "plan transpose"}));
}

TEST_F(Run, FlagsGoWithTheirLane) {
  constexpr const char* kPlugins = "xla, mosaic, jax_bridge or splash";
  for (const auto& [flag, value, lane] :
       {std::tuple("--threads", "2", "cpu"),
        {"--isa", "avx2", "cpu"},
        {"--plugin", "x.so", kPlugins},
        {"--device", "0", kPlugins},
        {"--method", "dense", "xla"},
        {"--mesh", "seq=2", "xla or mosaic"},
        {"--cache", "off", kPlugins},
        {"--artifact", "x", "jax_bridge or splash"},
        {"--max-compiles", "3", "xla or mosaic"},
        {"--numbers", "finite", "mosaic"},
        {"--row-sum", "rounded", "mosaic"},
        {"--lowering-reason", "few tokens", "xla, mosaic or splash"}}) {
    const std::string other = lane == std::string("cpu") ? "xla" : "cpu";
    for (const std::string& with : {other, std::string("reference")}) {
      EXPECT_EQ(message({"--lane", with, flag, value}),
                std::string("[cli] ") + flag + " goes with --lane " + lane +
                    ", found --lane " + with);
    }
  }
}

TEST_F(Run, NumbersAreFiniteOrAny) {
  EXPECT_EQ(message({"--lane", "mosaic", "--numbers", "both"}),
            "[mosaic] --numbers must be finite or any, found 'both'");
  EXPECT_EQ(message({"--lane", "mosaic", "--row-sum", "both"}),
            "[mosaic] --row-sum must be exact or rounded, found 'both'");
}

TEST_F(Run, XlaFlagsAreChecked) {
  const auto refused = [&](const char* flag, const char* value) {
    return message({"--lane", "xla", flag, value});
  };
  EXPECT_TRUE(refused("--method", "flash").ends_with(" found 'flash'"))
      << refused("--method", "flash");
  for (const char* flag : {"--device", "--max-compiles"}) {
    for (const char* value : {"-1", "1.5", "", "x", "99999999999999999999"}) {
      EXPECT_TRUE(refused(flag, value)
                      .starts_with(std::string("[cli] ") + flag + " must be "))
          << refused(flag, value);
    }
  }
  EXPECT_EQ(message({"--lane", "xla", "--fallback", "cpu", "--mesh", "seq=2"}),
            "[run] a mesh must run on lane xla or mosaic, found cpu");
  EXPECT_EQ(refused("--balance", "rows"),
            "[cli] --balance goes with --mesh, found no --mesh");
  EXPECT_EQ(refused("--exchange", "ragged"),
            "[cli] --exchange goes with --mesh, found no --mesh");
  EXPECT_EQ(message({"--lane", "xla", "--uneven"}),
            "[cli] --uneven goes with --mesh, found no --mesh");
  EXPECT_TRUE(refused("--mesh", "seq").starts_with("[mesh] "))
      << refused("--mesh", "seq");
  EXPECT_EQ(refused("--cache", ""),
            "[cli] --cache must be a folder or off, found ''");
  EXPECT_EQ(refused("--plugin", ""),
            "[cli] --plugin must be a file or a known name, found ''");
}

// The error comes before any array is made: these sizes fit no memory.
TEST_F(Run, APluginThatIsNotThereIsTold) {
  const auto refused = [&](const std::string& plugin) {
    return message({"--lane", "xla", "--plugin", plugin, "--batch", "30000"});
  };
  if (!pjrt::check_available()) {
    EXPECT_TRUE(refused("xla_cpu_pjrt").starts_with("[pjrt] "));
    return;
  }
  EXPECT_EQ(refused(file("none.so")),
            "[pjrt] a plugin must be a shared library, found no file for '" +
                file("none.so") + "'");
  ASSERT_TRUE(write_file(file("text.so"), "not a library").ok());
  EXPECT_TRUE(refused(file("text.so"))
                  .starts_with("[pjrt] a plugin must be a shared library, "))
      << refused(file("text.so"));
  EXPECT_TRUE(refused("no_such_name")
                  .starts_with("[pjrt] a plugin must be a path or one of "))
      << refused("no_such_name");
  const tessera::testing::Variable python("TESSERA_PYTHON", "/nowhere/python");
  const tessera::testing::Variable path("TESSERA_PJRT_XLA_CPU_PJRT", nullptr);
  EXPECT_TRUE(refused("xla_cpu_pjrt")
                  .starts_with("[pjrt] xla_cpu_pjrt must be installed (pip "
                               "install xla-cpu-pjrt; "))
      << refused("xla_cpu_pjrt");
}

// Tests with a real plugin, if there is one.
class RunXla : public Run {
 protected:
  void SetUp() override {
    const auto plugin = tessera::testing::real_plugin("xla_cpu_pjrt");
    if (tessera::testing::is_absent(plugin)) {
      GTEST_SKIP() << plugin.error().message;
    }
    ASSERT_TRUE(plugin.ok()) << plugin.error().message;
  }

  // Small: compiling takes most of the time.
  static Arguments with(Arguments more) {
    more.insert(more.begin(), {"--lane", "xla"});
    return more;
  }
};

TEST_F(RunXla, TellsSinkTelemetryByAProgramOfItsOwn) {
  const Arguments same = with({"--cache", file("cache"), "--backward"});
  const json off = run(same);
  Arguments asked = same;
  asked.insert(asked.end(),
               {"--sink-telemetry", "3", "--receipt", file("r.json")});
  const json on = run(asked);
  ASSERT_EQ(code_, 0) << err_ << on;
  EXPECT_EQ(on["output"], off["output"]);
  json kernels = on["kernels"];
  EXPECT_EQ(kernels.erase("sinks"), 1U);
  EXPECT_EQ(kernels, off["kernels"]);
  EXPECT_EQ(off["compiles"], 2);
  EXPECT_EQ(on["compiles"], 1);
  EXPECT_EQ(on["sink_telemetry"]["first_keys"], 3);
  EXPECT_EQ(program({"receipt", "verify", file("r.json")}), 0) << out_ << err_;
}

TEST_F(RunXla, AMeshHasNoSinkTelemetry) {
  EXPECT_EQ(message(with({"--sink-telemetry", "3", "--mesh", "data=2",
                          "--plugin", "xla_cpu_pjrt"})),
            "[dispatch] sink telemetry must be of one device, found a mesh of "
            "2");
}

TEST_F(RunXla, AMeshHasAnotherDefaultPlugin) {
  const auto plugin = tessera::testing::real_plugin("lammps_jax_pjrt_cpu");
  if (tessera::testing::is_absent(plugin)) {
    GTEST_SKIP() << plugin.error().message;
  }
  ASSERT_TRUE(plugin.ok()) << plugin.error().message;
  const Arguments request = {"--mask", "causal", "--q-len",    "64",
                             "--tile", "16",     "--head-dim", "16",
                             "--mesh", "seq=2",  "--cache",    "off"};
  const auto file_of = [&](const Arguments& more) {
    const json r = run(with(more), request);
    EXPECT_EQ(code_, 0) << err_ << r;
    return code_ == 0 ? r["plugin"]["file"].get<std::string>() : "";
  };
  EXPECT_EQ(file_of({"--check"}), (*plugin)->path());
  EXPECT_TRUE(
      file_of({"--plugin", "xla_cpu_pjrt"}).ends_with("xla_cpu_pjrt.so"));
}

TEST_F(RunXla, EveryMethodPassesItsCheck) {
  for (const auto& [method, dtype] :
       {std::pair("worklist", "bf16"), {"chunked", "f32"}, {"dense", "bf16"}}) {
    const json r = run(
        with({"--cache", "off", "--method", method, "--dtype", dtype, "--check",
              "--sink-logits", "--softcap", "15", "--layout", "bshd"}));
    ASSERT_EQ(code_, 0) << err_ << r;
    EXPECT_EQ(r["check"]["kind"], "full");
    EXPECT_EQ(r["check"]["passed"], true);
    EXPECT_EQ(r["lane"]["executed"], "xla");
    EXPECT_EQ(r["lane"]["family"], "xla");  // on a CPU
    EXPECT_EQ(r["method"], method);
  }
}

TEST_F(RunXla, ReceiptSaysWhatCompiledAndRan) {
  const Arguments arguments =
      with({"--backward", "--check", "--cache", file("cache")});
  const json first = run(arguments);
  ASSERT_EQ(code_, 0) << err_ << first;
  EXPECT_EQ(first["check"]["passed"], true);
  EXPECT_EQ(first["compiles"], 2);
  EXPECT_EQ(first["cache_hits"], json({{"memory", 0}, {"disk", 0}}));
  ASSERT_EQ(first["kernels"].size(), 2u);
  EXPECT_NE(first["kernels"]["forward"], first["kernels"]["backward"]);
  EXPECT_EQ(first["kernels"]["forward"].get<std::string>().size(), 32u);
  EXPECT_GT(first["ms"]["compile"], 0.0);
  EXPECT_GT(first["ms"]["forward"], 0.0);
  EXPECT_GT(first["ms"]["backward"], 0.0);
  EXPECT_GT(first["tiles"]["run"], 0);
  EXPECT_TRUE(first["isa"].is_null());
  EXPECT_TRUE(first["threads"].is_null());
  const json& plugin = first["plugin"];
  EXPECT_TRUE(plugin["file"].get<std::string>().ends_with("xla_cpu_pjrt.so"));
  EXPECT_EQ(plugin["platform"], "cpu");
  EXPECT_TRUE(plugin["api"].get<std::string>().starts_with("0."));
  EXPECT_NE(plugin["platform_version"], "");
  EXPECT_NE(plugin["device"], "");
  EXPECT_EQ(first["warnings"], json::array());

  // A new lane, as in another process, finds both programs on disk. A trace
  // changes no bit.
  Arguments traced = arguments;
  traced.insert(traced.end(), {"--trace", file("trace")});
  const json second = run(traced);
  ASSERT_EQ(code_, 0) << err_;
  EXPECT_EQ(second["compiles"], 0);
  EXPECT_EQ(second["cache_hits"], json({{"memory", 0}, {"disk", 2}}));
  for (const char* same : {"kernels", "output", "plugin", "tiles"}) {
    EXPECT_EQ(second[same], first[same]) << same;
  }
  const std::set<std::string> found = spans();
  for (const char* due :
       {"xla forward", "xla backward", "xla program", "pjrt load_plugin",
        "pjrt load", "pjrt to_device", "pjrt execute", "pjrt to_host"}) {
    EXPECT_TRUE(found.contains(due)) << due;
  }
  EXPECT_FALSE(found.contains("pjrt compile"));
}

TEST_F(RunXla, CompilesHaveALimit) {
  const std::string refused =
      message(with({"--cache", "off", "--max-compiles", "1", "--backward"}));
  EXPECT_NE(refused.find("compile"), std::string::npos) << refused;
}

TEST_F(RunXla, ADeviceThatIsNotThereIsTold) {
  const std::string refused = message(with({"--device", "1000"}));
  EXPECT_NE(refused.find("found 1000"), std::string::npos) << refused;
}

TEST_F(Run, TextSaysWhatRan) {
  EXPECT_EQ(program({"run", "--mask", "causal", "--q-len", "64", "--lane",
                     "reference", "--check", "--head-dim", "8"}),
            0);
  EXPECT_TRUE(
      out_.starts_with("ran         reference lane, portable, 1 thread, "))
      << out_;
  EXPECT_NE(out_.find("\ncheck       passed: all 512 rows, "),
            std::string::npos)
      << out_;
}

}  // namespace
}  // namespace tessera::cli
