// cli/run_test.cc: `tessera run` from the command line to its files.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/bytes.h"
#include "base/files.h"
#include "base/safetensors.h"
#include "cli/program.h"
#include "cli/random_inputs.h"
#include "cli/run_check.h"
#include "cli/run_lane.h"
#include "tessera/contract.h"

namespace tessera::cli {
namespace {

using nlohmann::json;
using Arguments = std::vector<std::string>;

constexpr int64_t kQueries = 48;
constexpr int64_t kKeys = 64;

class Run : public testing::Test {
 protected:
  Run() { std::filesystem::create_directories(folder_); }
  ~Run() override { std::filesystem::remove_all(folder_); }

  std::string file(const char* name) const { return folder_ + "/" + name; }

  // A small run; its exit code is left in code_.
  json run(const Arguments& more,
           const Arguments& request = {"--mask", "causal & window(20, 0)",
                                       "--q-len", "48", "--kv-len", "64",
                                       "--tile", "16", "--head-dim", "16",
                                       "--heads", "4", "--kv-heads", "2"}) {
    Arguments a = {"run", "--json"};
    a.insert(a.end(), request.begin(), request.end());
    a.insert(a.end(), more.begin(), more.end());
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    code_ = run_program(a);
    said_ = testing::internal::GetCapturedStderr();
    return json::parse(testing::internal::GetCapturedStdout());
  }

  const std::string folder_ =
      testing::TempDir() + "tessera_run_" + std::to_string(getpid());
  int code_ = -1;
  std::string said_;
};

class RunLane : public Run, public testing::WithParamInterface<const char*> {};
INSTANTIATE_TEST_SUITE_P(Each, RunLane, testing::Values("cpu", "reference"));

TEST_P(RunLane, PassesItsCheck) {
  for (const char* dtype : {"f32", "bf16", "f16"}) {
    for (const char* layout : {"bhsd", "bshd"}) {
      const json r = run({"--lane", GetParam(), "--backward", "--check",
                          "--sink-logits", "--softcap", "15", "--v-head-dim",
                          "24", "--dtype", dtype, "--layout", layout});
      ASSERT_EQ(code_, 0) << said_ << r;
      EXPECT_EQ(r["check"]["kind"], "full");
      EXPECT_EQ(r["check"]["passed"], true);
      EXPECT_LE(r["check"]["max_bound_ratio"], 1.0);
      EXPECT_EQ(r["check"]["rows"], 2 * 4 * kQueries + 2 * kKeys);
      EXPECT_EQ(r["lane"]["executed"], GetParam());
      EXPECT_EQ(r["shape"]["dtype"], dtype);
    }
  }
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
  // The arrays that a seed stands for, as a file.
  const json drawn =
      run({"--q-len", "48", "--kv-len", "64", "--heads", "4", "--kv-heads", "2",
           "--head-dim", "16", "--dtype", "bf16", "--sink-logits", "--outputs",
           file("a"), "--batch", "2"},
          request);
  ASSERT_EQ(code_, 0) << said_;
  struct Made {
    const char* name;
    Stream stream;
    int64_t heads, tokens;
  };
  Safetensors inputs;
  std::vector<Array> arrays;
  arrays.reserve(4);
  for (const Made& m :
       {Made{"q", Stream::q, 4, kQueries}, Made{"k", Stream::k, 2, kKeys},
        Made{"v", Stream::v, 2, kKeys},
        Made{"dout", Stream::dout, 4, kQueries}}) {
    arrays.emplace_back(Dtype::bf16, Layout::bshd, 2, m.heads, m.tokens, 16);
    fill_random(arrays.back().view(), 0, m.stream);
    inputs.tensors[m.name] = {Dtype::bf16, arrays.back().shape(),
                              arrays.back().bytes()};
  }
  std::vector<float> dlse(2 * 4 * kQueries), sinks(4);
  fill_random(dlse, 0, Stream::dlse);
  fill_random(sinks, 0, Stream::sink_logits);
  inputs.tensors["dlse"] = {
      Dtype::f32, {2, 4, kQueries}, bytes_of(std::span<const float>(dlse))};
  inputs.tensors["sink_logits"] = {
      Dtype::f32, {4}, bytes_of(std::span<const float>(sinks))};
  ASSERT_TRUE(write_file(file("in"), *write_safetensors(inputs)).ok());

  // Shapes, dtype and sink logits come from the file.
  const json read =
      run({"--inputs", file("in"), "--outputs", file("b")}, request);
  ASSERT_EQ(code_, 0) << said_;
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

  // What contradicts the file is refused.
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
  Array q(Dtype::f32, Layout::bhsd, 1, 1, 8, 8);  // NaN throughout
  const Tensor nans = {Dtype::f32, q.shape(), q.bytes()};
  Safetensors inputs;
  for (const char* name : {"q", "k", "v"}) inputs.tensors[name] = nans;
  ASSERT_TRUE(write_file(file("in"), *write_safetensors(inputs)).ok());
  const json r = run({"--inputs", file("in"), "--check"},
                     {"--mask", "causal", "--lane", GetParam()});
  EXPECT_EQ(code_, 0) << said_ << r;
  EXPECT_EQ(r["output"]["digest"].get<std::string>().size(), 32u);
  EXPECT_EQ(r["check"]["max_error"], 0.0);
}

TEST_F(Run, ReceiptIsThatOfThePlan) {
  Request request;
  request.masks = {*parse_mask("causal & window(20, 0)")};
  request.q_len = kQueries;
  request.kv_len = kKeys;
  request.tile = {16, 16};
  const Plan plan = *make_plan(request, {});
  const json r = run({"--receipt", file("r"), "--threads", "1"});
  ASSERT_EQ(code_, 0) << said_;
  EXPECT_EQ(json::parse(*read_file(file("r"), 1 << 20)), r);
  EXPECT_EQ(r["plan"]["digest"], plan_digest(plan));
  EXPECT_EQ(r["contract"], make_contract(request, {}, plan)->key);
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
  ASSERT_EQ(code_, 0) << said_;
  ASSERT_TRUE(write_file(file("spec"), r["request"].dump()).ok());
  const json again =
      run({"--lane", "reference"}, {"--spec", file("spec"), "--head-dim", "8"});
  ASSERT_EQ(code_, 0) << said_;
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
  Arguments plan = {"plan", "-o", file("plan")};
  plan.insert(plan.end(), request.begin(), request.end());
  testing::internal::CaptureStdout();
  ASSERT_EQ(run_program(plan), 0);
  testing::internal::GetCapturedStdout();
  const json a = run({"--lane", "reference", "--head-dim", "8"}, request);
  const json b =
      run({"--lane", "reference", "--head-dim", "8"}, {"--plan", file("plan")});
  ASSERT_EQ(code_, 0) << said_;
  EXPECT_EQ(a["output"], b["output"]);
  EXPECT_EQ(a["plan"], b["plan"]);
  EXPECT_EQ(b["plan_file"], file("plan"));
}

TEST_F(Run, CheckFindsACorruptedOutput) {
  Request request;
  request.masks = {*parse_mask("causal")};
  for (const int64_t tokens : {100, 8192}) {  // whole, and a sample
    request.q_len = request.kv_len = tokens;
    const Plan plan = *make_plan(request, {});
    AttentionData data;
    data.q_len = data.kv_len = tokens;
    data.shape = {1, 1, 8, 8, {}, 0};
    data.allocate();
    fill_random(data.q.view(), 0, Stream::q);
    fill_random(data.k.view(), 0, Stream::k);
    fill_random(data.v.view(), 0, Stream::v);
    ASSERT_TRUE(lanes()[1].run({request, {}, plan, data, {}}).ok());
    const auto good = check_run(request, {}, data, 0);
    ASSERT_TRUE(good.ok());
    EXPECT_TRUE(good->passed) << good->worst;
    EXPECT_EQ(good->kind, tokens == 100 ? "full" : "sampled");
    static_cast<float*>(data.out.view().data)[3] += 1e-3f;  // query 0
    const auto bad = check_run(request, {}, data, 0);
    ASSERT_TRUE(bad.ok());
    EXPECT_FALSE(bad->passed);
    EXPECT_TRUE(bad->worst.starts_with("out[0, 0, 0, 3] is ")) << bad->worst;
  }
}

// Nothing written by the lane is judged as NaN, not as what lay there before.
TEST_F(Run, CheckFindsAnOutputThatNobodyWrote) {
  Request request;
  request.masks = {*parse_mask("causal")};
  request.q_len = request.kv_len = 16;
  AttentionData data;
  data.q_len = data.kv_len = 16;
  data.shape = {1, 1, 8, 8, {}, 0};
  data.allocate();
  fill_random(data.q.view(), 0, Stream::q);
  fill_random(data.k.view(), 0, Stream::k);
  fill_random(data.v.view(), 0, Stream::v);
  EXPECT_FALSE(check_run(request, {}, data, 0)->passed);
}

TEST_F(Run, OutputsAreCheckedBeforeTheRun) {
  for (const char* flag : {"--receipt", "--outputs"}) {
    const json e = run({flag, file("absent/x")});
    EXPECT_EQ(code_, 2);
    EXPECT_EQ(e["error"]["message"],
              "[file] output must lie in a directory that exists, found none "
              "for '" +
                  file("absent/x") + "'");
  }
}

TEST_F(Run, TextSaysWhatRan) {
  testing::internal::CaptureStdout();
  EXPECT_EQ(run_program({"run", "--mask", "causal", "--q-len", "64", "--lane",
                         "reference", "--check", "--head-dim", "8"}),
            0);
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_TRUE(
      text.starts_with("ran         reference lane, portable, 1 "
                       "thread, "))
      << text;
  EXPECT_NE(text.find("\ncheck       passed: all 512 rows, "),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace tessera::cli
