// cli/receipt/command_test.cc: `tessera receipt`: true receipts verify, and
// forged ones of each kind are found even if their digest is right.
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "cli/compile/receipt.h"
#include "receipt/read.h"
#include "tests/plugins.h"
#include "tests/program.h"

namespace tessera::cli {
namespace {

using nlohmann::json;
using tessera::testing::Arguments;

class ReceiptCommand : public tessera::testing::Program {
 protected:
  json make(Arguments more) {
    Arguments a = {
        "run", "--mask", "causal & documents", "--q-len",   "48", "--tile",
        "16",  "--docs", "lengths:20,28",      "--heads",   "2",  "--head-dim",
        "16",  "--json", "--receipt",          file("good")};
    a.insert(a.end(), more.begin(), more.end());
    EXPECT_EQ(program(a), 0) << err_ << out_;
    return json::parse(out_);
  }

  int verify(const char* name) {
    return program({"receipt", "verify", file(name)});
  }

  // Writes the receipt with the change and a matching digest.
  void forge(const json& good, const std::function<void(json&)>& change) {
    json r = good;
    change(r);
    r["receipt_digest"] = receipt::receipt_digest(r);
    ASSERT_TRUE(write_file(file("forged"), r.dump()).ok());
  }
};

// A run that routed records the settings, so verify can route again.
TEST_F(ReceiptCommand, VerifiesRoutedRuns) {
  const Arguments routed = {
      "--mask",        "causal & documents & routed(top=3, block=4)",
      "--kv-heads",    "1",
      "--rule",        "query-head",
      "--meaning",     "union",
      "--compression", "4",
      "--stride",      "4",
      "--query-tile",  "16",
      "--kv-tile",     "16",
      "--meta-ratio",  "2",
      "--top-metas",   "2",
      "--hierarchical"};
  const json good = make(routed);
  EXPECT_EQ(verify("good"), 0) << out_ << err_;
  const std::map<std::string, json> lies = {{"sink_blocks", 1},
                                            {"meaning", "exact"},
                                            {"top_metas", 1},
                                            {"rule", "kv-head"}};
  for (const auto& [name, value] : lies) {
    forge(good, [&, key = name, to = value](json& r) {
      r["routing"]["settings"][key] = to;
    });
    EXPECT_EQ(verify("forged"), 1) << name << out_ << err_;
  }
  forge(good, [](json& r) { r["routing"]["widest_union"] = 1; });
  EXPECT_EQ(verify("forged"), 1) << out_ << err_;
}

// Runs with drawn picks, and with a saved plan of them.
TEST_F(ReceiptCommand, VerifiesRunsOverGivenPicks) {
  make({"--mask", "causal & documents & routed(top=3, block=4)", "--picks",
        "clustered:dim=8", "--meaning", "union", "--query-tile", "16",
        "--max-union", "8"});
  EXPECT_EQ(verify("good"), 0) << out_ << err_;
}

// Attention exported by JAX is verified as any other lane.
TEST_F(ReceiptCommand, VerifiesRunsOverTheBridge) {
  const auto plugin = tessera::testing::real_plugin("xla_cpu_pjrt");
  if (tessera::testing::is_absent(plugin)) {
    GTEST_SKIP() << plugin.error().message;
  }
  const Arguments bridged = {"run",
                             "--mask",
                             "causal & window(5, 0) & documents",
                             "--q-len",
                             "16",
                             "--docs",
                             "lengths:6,10",
                             "--heads",
                             "2",
                             "--kv-heads",
                             "1",
                             "--head-dim",
                             "8",
                             "--softcap",
                             "2",
                             "--lane",
                             "jax_bridge",
                             "--artifact",
                             "tests/golden/bridge/small.mlirbc",
                             "--shapes",
                             "tests/golden/bridge/small.json",
                             "--check",
                             "--cache",
                             "off",
                             "--json",
                             "--receipt",
                             file("good")};
  ASSERT_EQ(program(bridged), 0) << err_ << out_;
  const json good = json::parse(out_);
  EXPECT_EQ(good["check"]["passed"], true);
  EXPECT_EQ(good["artifact"]["file"], "tests/golden/bridge/small.mlirbc");
  EXPECT_EQ(verify("good"), 0) << out_ << err_;
  forge(good, [](json& r) { r["artifact"]["digest"] = std::string(32, 'a'); });
  EXPECT_EQ(verify("forged"), 1) << out_ << err_;
  forge(good, [](json& r) { r["artifact"]["file"] = nullptr; });
  EXPECT_EQ(verify("forged"), 2) << out_ << err_;
  Arguments other = bridged;
  other.insert(other.end(), {"--scale", "1"});
  EXPECT_EQ(program(other), 2);
  EXPECT_EQ(err_,
            "tessera: [bridge] scale must be the artifact's "
            "0.35355339059327373, found 1\n");
}

// Receipts of `tessera bridge`, for any operation.
TEST_F(ReceiptCommand, VerifiesWhatTheBridgeRan) {
  const auto plugin = tessera::testing::real_plugin("xla_cpu_pjrt");
  if (tessera::testing::is_absent(plugin)) {
    GTEST_SKIP() << plugin.error().message;
  }
  const std::string folder = "tests/golden/bridge/";
  const Arguments bridge = {"bridge",    folder + "small.mlirbc",
                            "--shapes",  folder + "small.json",
                            "--cache",   "off",
                            "--receipt", file("good"),
                            "--json"};
  Arguments drawn = bridge, from_file = bridge;
  drawn.insert(drawn.end(), {"--seed", "7"});
  from_file.insert(from_file.end(),
                   {"--check", "--inputs", folder + "small.in.safetensors"});
  for (const Arguments& how : {drawn, from_file}) {
    ASSERT_EQ(program(how), 0) << err_ << out_;
    EXPECT_EQ(verify("good"), 0) << out_ << err_;
    EXPECT_TRUE(out_.starts_with("verified    its digest, and ")) << out_;
  }
  const auto text = read_file(file("good"), 1 << 20);
  ASSERT_TRUE(text.ok());
  EXPECT_TRUE(check_receipt(*text).ok());
  const json good = json::parse(*text);
  EXPECT_EQ(program({"receipt", "show", file("good")}), 0);
  EXPECT_NE(out_.find("\noperation   attention small\n"), std::string::npos)
      << out_;
  EXPECT_EQ(program({"receipt", "diff", file("good"), file("good")}), 0);

  const std::string ones(32, '1');
  const std::map<std::string, json> lies = {
      {"/artifact/digest", ones}, {"/output/digest", ones},
      {"/key/digest", ones},      {"/inputs/digests/q", ones},
      {"/operation", "rms_norm"}, {"/compiles", 0},
      {"/check/rows", 31},        {"/plugin/api", "0.1"},
      {"/lane/family", "native"}, {"/lane/source", "flag"},
      {"/lane/chosen", "cpu"}};
  for (const auto& [field, value] : lies) {
    forge(good, [&, at = field, to = value](json& r) {
      r[json::json_pointer(at)] = to;
    });
    EXPECT_EQ(verify("forged"), 1) << field << out_ << err_;
  }
  // Receipts that the schema refuses.
  const std::map<std::string, json> malformed = {{"/lane/family", "numpy"},
                                                 {"/key/wider", false},
                                                 {"/ms/run", "inf"},
                                                 {"/more", 1}};
  for (const auto& [field, value] : malformed) {
    forge(good, [&, at = field, to = value](json& r) {
      r[json::json_pointer(at)] = to;
    });
    EXPECT_EQ(verify("forged"), 2) << field << out_;
    EXPECT_TRUE(err_.starts_with("tessera: [receipt] ")) << err_;
  }
  json wrong = good;
  wrong["ms"]["run"] = 0;
  ASSERT_TRUE(write_file(file("forged"), wrong.dump()).ok());
  EXPECT_EQ(verify("forged"), 1);
  EXPECT_TRUE(out_.starts_with("WRONG       [receipt] receipt_digest must be"))
      << out_;
}

// The library also writes receipts for arrays that only the caller had.
TEST_F(ReceiptCommand, AnOperationOfLostArraysIsNotRunAgain) {
  const std::string digest(32, 'a');
  receipt::Receipt r;
  r.kind = receipt::Kind::operation;
  r.version = "0.1.0";
  r.lane = {"jax_bridge", "command", "jax_bridge", "jax_bridge", "tpu/jax",
            "executed",   {}};
  r.operation = r.name = "norm";
  r.plugin = receipt::Receipt::Plugin{"a.so", "0.81", "cpu", "v", "cpu 0", 0};
  r.artifact = {"norm.mlirbc", "norm.json", digest, 900, "0.7.2", 9, {"cpu"}};
  r.inputs = {0, "", {{"x", digest}}, {}, {{"x", "F32", {2, 3}}}};
  r.outputs = {{"y", "F32", {2, 3}}};
  r.key = {digest, true, "all", "{\"artifact\":\"" + digest + "\"}"};
  r.compiles = 1;
  r.output_digest = digest;
  ASSERT_TRUE(write_file(file("own"), receipt::receipt_json(r)).ok());
  EXPECT_EQ(verify("own"), 2) << out_;
  EXPECT_EQ(err_,
            "tessera: [receipt] a receipt's arrays must be drawn or in a file "
            "for it to run again, found neither\n");
}

TEST_F(ReceiptCommand, VerifiesTrueOnes) {
  for (const Arguments& how :
       {Arguments{},
        {"--backward", "--check", "--dtype", "bf16", "--softcap", "15",
         "--sink-logits", "--layout", "bshd"},
        {"--lane", "reference", "--scale", "0.1"},
        {"--lane", "cpu", "--isa", "portable", "--threads", "1"},
        {"--valid", "40", "--seed", "7", "--max-steps", "99"}}) {
    make(how);
    EXPECT_EQ(verify("good"), 0) << out_ << err_;
    EXPECT_TRUE(out_.starts_with("verified    its digest, and ")) << out_;
  }
  EXPECT_EQ(program({"receipt", "show", file("good")}), 0);
  EXPECT_NE(out_.find("\nexecuted    cpu, family native\n"), std::string::npos)
      << out_;
  EXPECT_NE(out_.find(", that of its fields\n"), std::string::npos) << out_;
}

struct Forgery {
  const char* what;
  std::function<void(json&)> change;
};
const std::string kZeros(32, '0');

json gate_row() {
  return {{"kernel", "cpu/forward"},
          {"lane", "cpu"},
          {"basis", "measured"},
          {"machine", "A CPU"},
          {"generation", nullptr},
          {"class", "sparse blocks"},
          {"mask", "causal & documents"},
          {"direction", "forward"},
          {"dtype", "f32"},
          {"q_len", 48},
          {"kv_len", 48},
          {"heads", 2},
          {"kv_heads", 2},
          {"head_dim", 16},
          {"v_head_dim", 16},
          {"softcap", 0},
          {"density", 0.5},
          {"kernel_ms", 1},
          {"plain_ms", 2},
          {"kernel_cycles", nullptr},
          {"plain_cycles", nullptr},
          {"error_bar", nullptr},
          {"plain", "dense"},
          {"factor", 2},
          {"judgement", "passed"},
          {"error", 0.5},
          {"shape_per_step", false},
          {"verdict", "delete"},
          {"why", ""}};
}

std::vector<Forgery> forged_choices() {
  return {
      {"lane",
       [](json& r) {
         r["lane"]["executed"] = r["lane"]["chosen"] = "reference";
         r["lane"]["family"] = "reference";
       }},
      {"lane with its reasons",
       [](json& r) {
         r["lane"]["executed"] = r["lane"]["chosen"] = "reference";
         r["lane"]["family"] = "reference";
         r["lane"]["requested"] = "reference";
         r["choice"]["rejected"].erase("reference");
         r["choice"]["rejected"]["cpu"] = "slow";
       }},
      {"fallback",
       [](json& r) {
         r["lane"]["chosen"] = "xla";
         r["lane"]["fallback_allowed"] = {"cpu"};
         r["fallback"] = "xla did not start";
         r["choice"]["rejected"].erase("xla");
         r["choice"]["rejected"]["cpu"] = "second";
       }},
      {"family", [](json& r) { r["lane"]["family"] = "tpu/jax"; }},
      {"reason", [](json& r) { r["choice"]["reason"] = "it felt right"; }},
      {"rejected", [](json& r) { r["choice"]["rejected"]["xla"] = "bad"; }},
      {"class", [](json& r) { r["choice"]["class"] = "plain causal"; }},
      {"rule", [](json& r) { r["choice"]["rule"] = "tpu kernels"; }},
  };
}

std::vector<Forgery> forged_work() {
  return {
      {"tiles run", [](json& r) { r["tiles"]["run"] = 3; }},
      {"tiles skipped", [](json& r) { r["tiles"]["skipped"] = 300; }},
      {"pairs run", [](json& r) { r["pairs"]["run"] = 3; }},
      {"pairs legal",
       [](json& r) {
         r["pairs"]["legal"] = 0;
         r["gflops"]["useful"] = 0.0;
       }},
      {"contract", [](json& r) { r["contract"] = kZeros; }},
      {"plan", [](json& r) { r["plan"]["digest"] = kZeros; }},
      {"facts", [](json& r) { r["facts_digest"] = kZeros; }},
      {"output", [](json& r) { r["output"]["digest"] = kZeros; }},
      {"input", [](json& r) { r["inputs"]["digests"]["q"] = kZeros; }},
      {"seed", [](json& r) { r["inputs"]["seed"] = 1; }},
      {"mask", [](json& r) { r["request"]["mask"] = {"causal"}; }},
      {"length", [](json& r) { r["request"]["q_len"] = 40; }},
      {"documents", [](json& r) { r["request"]["docs"] = "lengths:48"; }},
      {"shape", [](json& r) { r["shape"]["heads"] = 4; }},
      {"softcap", [](json& r) { r["shape"]["softcap"] = 5.0; }},
      {"dtype", [](json& r) { r["shape"]["dtype"] = "bf16"; }},
      {"direction", [](json& r) { r["direction"] = "forward+backward"; }},
      {"kernels", [](json& r) { r["kernels"]["forward"] = kZeros; }},
      {"compiles", [](json& r) { r["compiles"] = 1; }},
      {"hits", [](json& r) { r["cache_hits"]["disk"] = 1; }},
  };
}

std::vector<Forgery> forged_places_and_results() {
  return {
      {"plugin",
       [](json& r) {
         r["plugin"] = {{"file", "x.so"},        {"api", "0.1"},
                        {"platform", "tpu"},     {"platform_version", ""},
                        {"device", "TPU v6e 0"}, {"number", 0}};
       }},
      {"device", [](json& r) { r["device"] = "TPU v6e"; }},
      {"time", [](json& r) { r["ms"]["forward"] = 1e-3; }},
      {"speed", [](json& r) { r["gflops"]["useful"] = 9000.0; }},
      {"check", [](json& r) { r["check"]["rows"] = 1; }},
      {"error", [](json& r) { r["check"]["max_error"] = 0.0; }},
      {"gate",
       [](json& r) { r["choice"]["gate"] = json::array({gate_row()}); }},
      {"machine and device",
       [](json& r) {
         r["machine"]["cpu"] = "Another";
         r["device"] = "TPU v6e";
       }},
      {"isa of another machine",
       [](json& r) { r["machine"]["isas"] = json::array(); }},
      {"compiled only",
       [](json& r) {
         r["lane"]["runtime_mode"] = "compiled only";
         r["lane"]["executed"] = nullptr;
       }},
  };
}

TEST_F(ReceiptCommand, CatchesForgeriesOfEachKind) {
  const json good = make({"--check"});
  for (const auto& forgeries :
       {forged_choices(), forged_work(), forged_places_and_results()}) {
    for (const Forgery& f : forgeries) {
      forge(good, f.change);
      EXPECT_EQ(verify("forged"), 1) << f.what << ": " << out_ << err_;
      EXPECT_TRUE(out_.starts_with("WRONG ")) << f.what << ": " << out_;
    }
  }
  // A receipt without a change is no forgery.
  forge(good, [](json&) {});
  EXPECT_EQ(verify("forged"), 0) << out_;
}

// Verify needs no plugin here and does not load the one that the receipt names.
TEST_F(ReceiptCommand, VerifiesWhatWasOnlyCompiled) {
  ASSERT_EQ(program({"plan", "--mask", "causal & window(100, 0)", "--q-len",
                     "512", "--tile", "128", "-o", file("plan")}),
            0)
      << err_;
  KernelFlags plan, blocks, gradients, rounded;
  rounded.run.numbers = "any";
  rounded.run.request.masks = {"causal"};
  rounded.run.request.q_len = "512";
  rounded.run.row_sum = "rounded";
  gradients.run.request.masks = {"causal"};
  gradients.run.request.q_len = "512";
  gradients.run.backward = gradients.dlse = true;
  plan.run.request.plan = file("plan");
  plan.run.lowering_reason = "few tokens";
  blocks.run.request.masks = {"documents & causal & causal"};
  blocks.run.request.docs = "lengths:200,312";
  blocks.run.request.q_len = "512";
  blocks.run.request.logical_block = "64";
  blocks.run.lowering_reason = "short documents";
  for (KernelFlags& flags : {std::ref(plan), std::ref(blocks),
                             std::ref(gradients), std::ref(rounded)}) {
    flags.run.heads = "2";
    flags.run.head_dim = "128";
    run::CompiledBy by;
    by.target = "v6e:1x1";
    by.plugin = {"/nowhere/libtpu.so", "0.77", "tpu", "", by.target, 0};
    by.compile_ms = 3;
    by.machine = {"A CPU", 2,    {Isa::portable},
                  true,    true, {{"libtpu", "tpu", 0}}};
    const auto kernel = make_asked_kernel(flags, by.target);
    ASSERT_TRUE(kernel.ok()) << kernel.error().message;
    const auto receipt = compile_receipt(flags, *kernel, by);
    ASSERT_TRUE(receipt.ok()) << receipt.error().message;
    const json good = json::parse(receipt::receipt_json(*receipt));
    ASSERT_TRUE(write_file(file("good"), good.dump()).ok());
    EXPECT_EQ(verify("good"), 0) << out_ << err_;
    EXPECT_NE(out_.find("nothing ran"), std::string::npos) << out_;
    const std::pair<const char*, json> lies[] = {
        {"/contract", std::string(32, '1')},
        {"/kernels/forward", std::string(32, '1')},
        {"/plugin/platform", "cuda"},
        {"/plugin/device", "v5e:1x1"},
        {"/tiles/run", 4},
        {"/parameters/fetch_ahead", 7},
        {"/parameters/dlse", flags.dlse ? 0 : 1},
        {"/parameters/row_sum_rounded", flags.run.row_sum ? 0 : 1},
        {"/parameters/any_numbers", flags.run.numbers ? 0 : 1},
        {"/direction", flags.run.backward ? "forward" : "forward+backward"},
        {"/lane/executed", "cpu"}};
    for (const auto& [field, value] : lies) {
      forge(good, [&, at = field, to = value](json& r) {
        r[json::json_pointer(at)] = to;
      });
      EXPECT_EQ(verify("forged"), 1) << field << out_ << err_;
    }
    EXPECT_EQ(good["lowering"]["reason"], flags.run.lowering_reason
                                              ? json(*flags.run.lowering_reason)
                                              : json());
    EXPECT_EQ(good["lowering"]["paid_pairs"], 0);
    for (const json& reason : {json("another"), json()}) {
      forge(good, [&](json& r) { r["lowering"]["reason"] = reason; });
      EXPECT_EQ(verify("forged"), reason == good["lowering"]["reason"] ? 0 : 1)
          << reason << out_ << err_;
    }
    forge(good, [](json& r) {
      r["ms"]["forward"] = 5;
      r["ms"]["total"] = 8;
    });
    EXPECT_EQ(verify("forged"), 1) << out_ << err_;
  }
}

TEST_F(ReceiptCommand, ShowsWhatAForgerLeftOut) {
  forge(make({"--check"}), [](json& r) { r["check"].erase("passed"); });
  EXPECT_EQ(program({"receipt", "show", file("forged")}), 0) << err_;
  EXPECT_NE(out_.find("\ncheck       FAILED: "), std::string::npos) << out_;
  EXPECT_EQ(verify("forged"), 1) << out_;
}

TEST_F(ReceiptCommand, CatchesABrokenDigest) {
  json r = make({});
  r["tiles"]["run"] = 3;
  ASSERT_TRUE(write_file(file("forged"), r.dump()).ok());
  EXPECT_EQ(verify("forged"), 1);
  EXPECT_TRUE(out_.starts_with("WRONG       [receipt] receipt_digest must be "))
      << out_;
  EXPECT_EQ(program({"receipt", "show", file("forged")}), 1);
  EXPECT_NE(out_.find("\ndigest      WRONG: "), std::string::npos) << out_;
  // Prints the receipt itself; no help lists its fields.
  const auto show = [&](const std::string& name) {
    return captured(testing::run_tessera,
                    {"receipt", "show", file(name), "--json"});
  };
  EXPECT_EQ(show("forged"), 1);
  EXPECT_EQ(json::parse(out_), r);
  EXPECT_EQ(show("good"), 0);
  EXPECT_EQ(program({"receipt", "verify", file("forged"), "--json"}), 1);
  EXPECT_EQ(json::parse(out_)["verified"], false);
}

TEST_F(ReceiptCommand, RefusesAnEmptyTextInPlaceOfNull) {
  forge(make({}), [](json& r) { r["plan_file"] = ""; });
  for (const char* verb : {"verify", "show"}) {
    EXPECT_EQ(program({"receipt", verb, file("forged")}), 2) << out_;
    EXPECT_EQ(err_,
              "tessera: [receipt] plan_file must be null or a text, found an "
              "empty one (in '" +
                  file("forged") + "')\n");
  }
}

TEST_F(ReceiptCommand, FilesAreReadAgain) {
  ASSERT_EQ(program({"run", "--mask", "causal", "--q-len", "32", "--tile", "16",
                     "--heads", "2", "--head-dim", "16", "--outputs",
                     file("arrays"), "--json"}),
            0);
  ASSERT_EQ(program({"plan", "--mask", "causal", "--q-len", "32", "--tile",
                     "16", "-o", file("plan")}),
            0);
  ASSERT_EQ(program({"run", "--plan", file("plan"), "--heads", "2",
                     "--head-dim", "16", "--receipt", file("good")}),
            0)
      << err_;
  EXPECT_EQ(verify("good"), 0) << out_ << err_;
  std::filesystem::remove(file("plan"));
  EXPECT_EQ(verify("good"), 2);
  EXPECT_TRUE(err_.starts_with("tessera: [file] ")) << err_;
}

TEST_F(ReceiptCommand, Diffs) {
  make({});
  std::filesystem::rename(file("good"), file("a"));
  make({"--seed", "1"});
  EXPECT_EQ(program({"receipt", "diff", file("a"), file("a")}), 0);
  EXPECT_EQ(out_, "");
  EXPECT_EQ(program({"receipt", "diff", file("a"), file("good")}), 1);
  EXPECT_NE(out_.find("inputs.seed: 0 | 1\n"), std::string::npos) << out_;
  EXPECT_NE(out_.find("output.digest: "), std::string::npos) << out_;
}

TEST_F(ReceiptCommand, ArgumentsAreChecked) {
  make({});
  const auto refused = [&](const Arguments& more) {
    Arguments a = {"receipt"};
    a.insert(a.end(), more.begin(), more.end());
    EXPECT_EQ(program(a), 2) << out_;
    return err_;
  };
  EXPECT_EQ(refused({"prove", file("good")}),
            "tessera: [cli] receipt must be told to show, verify, diff or "
            "print its schema, found 'prove'\n");
  EXPECT_EQ(refused({"diff", file("good")}),
            "tessera: [cli] receipt diff must be given 2 files, found 1\n");
  EXPECT_EQ(refused({"show"}),
            "tessera: [cli] receipt show must be given 1 file, found 0\n");
  ASSERT_TRUE(write_file(file("bad"), "{\"schema\": 13}").ok());
  EXPECT_EQ(refused({"verify", file("bad")}).substr(0, 38),
            "tessera: [receipt] every field must be");
  ASSERT_TRUE(write_file(file("cut"), "{").ok());
  for (const Arguments& more :
       {Arguments{"show", file("cut")}, Arguments{"verify", file("cut")},
        Arguments{"diff", file("good"), file("cut")}}) {
    EXPECT_EQ(refused(more),
              "tessera: [receipt] text must be valid JSON, found the end of "
              "the text for line 1, column 2 (in '" +
                  file("cut") + "')\n");
  }
  EXPECT_EQ(program({"receipt", "schema"}), 0);
  EXPECT_EQ(out_, receipt_schema());
}

// Verify runs on the mesh again, spread as the receipt says; another balance is
// reported as a difference.
TEST_F(ReceiptCommand, VerifiesAMeshsRun) {
  const auto plugin = tessera::testing::real_plugin("lammps_jax_pjrt_cpu");
  if (tessera::testing::is_absent(plugin)) {
    GTEST_SKIP() << plugin.error().message;
  }
  const json good = make({"--lane", "xla", "--cache", "off", "--mesh",
                          "head=2,seq=2", "--balance", "tasks"});
  EXPECT_FALSE(good["shards"].contains("work"));
  EXPECT_EQ(verify("good"), 0) << out_ << err_;
  for (const auto& [what, value] :
       {std::pair<const char*, json>{"/shards/mesh", "seq=2,head=2"},
        {"/shards/contract", std::string(32, '0')},
        {"/shards", nullptr}}) {
    forge(good, [&, &what = what, &value = value](json& r) {
      r[json::json_pointer(what)] = value;
    });
    EXPECT_EQ(verify("forged"), 1) << what << out_ << err_;
  }
}

// The second run uses the same work of a tile of each class.
TEST_F(ReceiptCommand, VerifiesTheWorkOfAMeshsTiles) {
  const auto plugin = tessera::testing::real_plugin("lammps_jax_pjrt_cpu");
  if (tessera::testing::is_absent(plugin)) {
    GTEST_SKIP() << plugin.error().message;
  }
  ASSERT_EQ(
      program({"run",       "--mask",     "causal",     "--q-len",   "128",
               "--tile",    "16",         "--head-dim", "16",        "--lane",
               "xla",       "--cache",    "off",        "--mesh",    "seq=2",
               "--balance", "contiguous", "--work",     "partial=9", "--json",
               "--receipt", file("good")}),
      0)
      << err_ << out_;
  const json good = json::parse(out_);
  EXPECT_EQ(good["shards"]["work"], "partial=9,full=1");
  EXPECT_EQ(verify("good"), 0) << out_ << err_;
  for (const char* work : {"partial=1,full=9", "partial=9,full=9"}) {
    forge(good, [&](json& r) { r["shards"]["work"] = work; });
    EXPECT_EQ(verify("forged"), 1) << work << out_ << err_;
    EXPECT_NE(out_.find("shards.work_max_over_mean"), std::string::npos)
        << out_ << err_;
  }
  forge(good, [&](json& r) { r["shards"].erase("work"); });
  EXPECT_EQ(verify("forged"), 1) << out_ << err_;
  forge(good, [&](json& r) { r["shards"]["work"] = "full=0"; });
  EXPECT_NE(verify("forged"), 0);
  EXPECT_NE(err_.find("[shard] the work of a full tile must be"),
            std::string::npos)
      << out_ << err_;
}

// The second run aims at the same evenness.
TEST_F(ReceiptCommand, VerifiesTheEvennessOfAMesh) {
  const auto plugin = tessera::testing::real_plugin("lammps_jax_pjrt_cpu");
  if (tessera::testing::is_absent(plugin)) {
    GTEST_SKIP() << plugin.error().message;
  }
  ASSERT_EQ(program({"run",
                     "--mask",
                     "causal & documents",
                     "--docs",
                     "lengths:200,24,16,16",
                     "--q-len",
                     "256",
                     "--tile",
                     "16",
                     "--head-dim",
                     "16",
                     "--lane",
                     "xla",
                     "--cache",
                     "off",
                     "--mesh",
                     "seq=2",
                     "--evenness",
                     "work=4,tokens=4",
                     "--json",
                     "--receipt",
                     file("good")}),
            0)
      << err_ << out_;
  const json good = json::parse(out_);
  EXPECT_EQ(good["shards"]["evenness"], "work=4,tokens=4");
  EXPECT_EQ(verify("good"), 0) << out_ << err_;
  forge(good, [&](json& r) { r["shards"].erase("evenness"); });
  EXPECT_EQ(verify("forged"), 1) << out_ << err_;
  EXPECT_NE(out_.find("shards.work_max_over_mean"), std::string::npos)
      << out_ << err_;
  forge(good, [&](json& r) { r["shards"]["evenness"] = "work=0"; });
  EXPECT_NE(verify("forged"), 0);
  EXPECT_NE(err_.find("[shard] the evenness of work must be"),
            std::string::npos)
      << out_ << err_;
}

TEST_F(ReceiptCommand, VerifiesAPluginsRun) {
  const auto plugin = tessera::testing::real_plugin("xla_cpu_pjrt");
  if (tessera::testing::is_absent(plugin)) {
    GTEST_SKIP() << plugin.error().message;
  }
  const json good = make({"--lane", "xla", "--cache", "off"});
  EXPECT_EQ(verify("good"), 0) << out_ << err_;
  for (const auto& [what, value] :
       {std::pair<const char*, json>{"/kernels/forward", std::string(32, '0')},
        {"/method", "dense"},
        {"/plugin/device", "TPU 0"},
        {"/plugin/api", "9.9"},
        {"/lane/family", "tpu/jax"},
        {"/compiles", 0}}) {
    forge(good, [&, &what = what, &value = value](json& r) {
      r[json::json_pointer(what)] = value;
    });
    EXPECT_EQ(verify("forged"), 1) << what << out_ << err_;
  }
}

}  // namespace
}  // namespace tessera::cli
