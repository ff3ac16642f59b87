// cli/choose/command_test.cc: `tessera choose`, `tessera doctor`, the fallback
// of `tessera run`, and random requests from flags to results.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>

#include "base/files.h"
#include "tests/plugins.h"
#include "tests/program.h"
#include "tests/variable.h"

namespace tessera::cli {
namespace {

using nlohmann::json;
using tessera::testing::Arguments;

class Dispatch : public tessera::testing::Program {
 protected:
  json run(Arguments a, bool is_json = true) {
    if (is_json) a.emplace_back("--json");
    program(a);
    return is_json ? json::parse(out_) : json();
  }

  json attend(const Arguments& more) {
    Arguments a = {"run",        "--mask",  "causal & window(9, 0)",
                   "--q-len",    "40",      "--tile",
                   "16",         "--heads", "2",
                   "--head-dim", "16"};
    a.insert(a.end(), more.begin(), more.end());
    return run(a);
  }
};

TEST_F(Dispatch, ChooseTellsAboutMachinesThatAreNotHere) {
  ASSERT_TRUE(write_file(file("tpu"), R"({"cpu": "A CPU", "threads": 8,
      "isas": ["avx2", "portable"], "plugins": [
        {"name": "libtpu", "platform": "tpu", "devices": 4}]})")
                  .ok());
  const json c = run({"choose", "--mask", "causal & documents", "--q-len",
                      "2048", "--docs", "lengths:1000,1048", "--dtype", "bf16",
                      "--machine", file("tpu")});
  ASSERT_EQ(code_, 0) << err_;
  EXPECT_EQ(c["lane"], "mosaic");
  EXPECT_EQ(c["method"], nullptr);
  EXPECT_EQ(c["plugin"], "libtpu");
  EXPECT_EQ(c["class"], "sparse blocks");
  EXPECT_EQ(c["rule"]["name"], "tpu kernels");
  EXPECT_EQ(c["rule"]["lane"], "mosaic");
  EXPECT_EQ(c["rule"]["beyond_tokens"], 256);
  EXPECT_EQ(c["rule"]["below_density"], 1.0);
  EXPECT_EQ(c["rule"]["direction"], nullptr);
  EXPECT_EQ(c["rule"]["up_to_tokens"], nullptr);
  EXPECT_EQ(c["gate"], json::array());
  EXPECT_EQ(c["machine"], "A CPU, 8 threads, avx2, 4 x tpu");
  EXPECT_EQ(c["rejected"].size(), 6u);
  EXPECT_EQ(c["rejected"]["xla"], "it could, but mosaic comes first");

  const json compiled =
      run({"choose", "--mask", "causal & documents", "--q-len", "2048",
           "--docs", "lengths:1000,1048", "--dtype", "bf16", "--machine",
           file("tpu"), "--compile-only"});
  EXPECT_EQ(compiled["lane"], "mosaic") << compiled;

  const Arguments telling = {
      "choose", "--mask",    "causal & documents", "--q-len",
      "2048",   "--docs",    "lengths:1000,1048",  "--dtype",
      "bf16",   "--machine", file("tpu"),          "--sink-telemetry",
      "3"};
  EXPECT_EQ(run(telling)["lane"], "mosaic");

  run({"choose", "--mask", "causal", "--q-len", "512", "--machine",
       file("tpu")},
      false);
  EXPECT_EQ(code_, 0);
  EXPECT_NE(out_.find("\n* xla         plain causal goes to the stable kernel"),
            std::string::npos)
      << out_;
  EXPECT_NE(out_.find("\n  rule        plain causal: "), std::string::npos)
      << out_;

  const auto rule = [&](const Arguments& more) {
    Arguments a = {"choose", "--mask", "full", "--machine", file("tpu")};
    a.insert(a.end(), more.begin(), more.end());
    return run(a)["rule"];
  };
  const json dense = rule({"--q-len", "900"});
  EXPECT_EQ(dense["name"], "dense, few tokens");
  EXPECT_EQ(dense["up_to_tokens"], 1024);
  const json both = rule({"--q-len", "2048", "--backward"});
  EXPECT_EQ(both["name"], "tpu worklist, backward");
  EXPECT_EQ(both["direction"], "backward");

  const json none =
      run({"choose", "--mask", "causal", "--q-len", "64", "--machine",
           file("tpu"), "--lane", "cpu", "--v-head-dim", "8"});
  EXPECT_EQ(code_, 0) << none;
  EXPECT_EQ(none["rule"], nullptr);
  const auto tpu_of = [&](const std::string& words) {
    return R"({"cpu": "A", "threads": 1, "isas": ["avx2"], "plugins": [)"
           R"({"name": "p", "devices": 1, )" +
           words + "}]}";
  };
  const auto message = [&](const std::string& text) {
    EXPECT_TRUE(write_file(file("bad"), text).ok());
    const json e = run({"choose", "--mask", "causal", "--q-len", "64",
                        "--machine", file("bad")});
    EXPECT_EQ(code_, 2) << text;
    return e["error"]["message"].get<std::string>();
  };
  const std::string in = " (in '" + file("bad") + "')";
  EXPECT_EQ(message(tpu_of(R"("platform": "tpu", "generation": "v9")")),
            "[machine] generation must be one of v4, v5e, v5p, v6e, tpu7x, "
            "found 'v9'" +
                in);
  EXPECT_EQ(message(tpu_of(R"("platform": "tpu", "generation": "v6e:1x1")")),
            "[machine] generation must be one of v4, v5e, v5p, v6e, tpu7x, "
            "found 'v6e:1x1'" +
                in);
  EXPECT_EQ(message(tpu_of(R"("platform": "cuda", "generation": "v6e")")),
            "[machine] generation must be of a tpu, found it with 'cuda'" + in);
  for (const char* broken :
       {"{", "[]", R"({"cpu": "A", "threads": 0, "isas": [], "plugins": []})",
        R"({"cpu": "A", "threads": 1, "isas": ["sse"], "plugins": []})",
        R"({"cpu": "A", "threads": 1, "isas": [], "plugins": [{}]})",
        R"({"cpu": "A", "threads": 1, "isas": [], "plugins": 3})"}) {
    ASSERT_TRUE(write_file(file("bad"), broken).ok());
    const json e = run({"choose", "--mask", "causal", "--q-len", "64",
                        "--machine", file("bad")});
    EXPECT_EQ(code_, 2) << broken;
    EXPECT_TRUE(e["error"]["message"].get<std::string>().starts_with("["));
  }
}

// As in `run`: a tile that no flag gives is that of Tessera's TPU kernels if
// they are chosen, and the counts are for that tile.
TEST_F(Dispatch, ChooseTakesTheTileOfOurKernels) {
  ASSERT_TRUE(write_file(file("tpu"), R"({"cpu": "A", "threads": 1, "isas": [],
      "plugins": [{"name": "libtpu", "platform": "tpu", "devices": 4,
                   "generation": "v6e"}]})")
                  .ok());
  const Arguments request = {
      "choose",    "--mask", "causal & documents", "--q-len",
      "4096",      "--docs", "lengths:2048,2048",  "--machine",
      file("tpu"), "--dtype"};
  const auto chosen = [&](const Arguments& more, bool is_json = true) {
    Arguments all = request;
    all.insert(all.end(), more.begin(), more.end());
    const json c = run(all, is_json);
    EXPECT_EQ(code_, 0) << err_;
    return c;
  };
  const json open = chosen({"bf16"});
  EXPECT_EQ(open["lane"], "mosaic");
  EXPECT_EQ(open["tile"], json({512, 512}));
  EXPECT_EQ(open["tile_by"],
            "the table, for 1024 keys a query; borrowed, for its rows are of "
            "finite numbers");
  EXPECT_EQ(open["density"], 0.3125);  // 20 of 64
  chosen({"bf16"}, false);
  EXPECT_NE(out_.find("\n  tile        512x512: the table, for 1024 keys a "
                      "query; borrowed, for its rows are of finite numbers\n"),
            std::string::npos)
      << out_;
  for (const Arguments& more : {Arguments{"bf16", "--tile", "256"},
                                {"f16"},
                                {"bf16", "--lane", "xla"}}) {
    const json other = chosen(more);
    EXPECT_EQ(other["tile"], json({256, 256}));
    EXPECT_EQ(other["tile_by"], nullptr);
    EXPECT_EQ(other["density"], 0.28125);  // 72 of 256
  }
}

// Requests whose lane refuses them without a reason, and requests that need
// none.
TEST_F(Dispatch, ChooseTellsWhatNeedsALoweringReason) {
  const auto needs = [&](const std::string& generation, const Arguments& more) {
    EXPECT_TRUE(
        write_file(file("tpu"), R"({"cpu": "A", "threads": 1, "isas": [],
        "plugins": [{"name": "libtpu", "platform": "tpu", "devices": 4)" +
                                    generation + "}]}")
            .ok());
    Arguments a = {"choose", "--dtype", "bf16", "--machine", file("tpu")};
    if (std::ranges::count(more, "--q-len") == 0) {
      a.insert(a.end(), {"--q-len", "4096"});
    }
    a.insert(a.end(), more.begin(), more.end());
    const json c = run(a);
    EXPECT_EQ(code_, 0) << err_;
    return c["needs"].is_null() ? "" : c["needs"].get<std::string>();
  };
  const std::string v6e = R"(, "generation": "v6e")";
  const Arguments causal = {"--mask", "causal", "--tile", "64"};
  EXPECT_EQ(
      needs(v6e, causal),
      "[xla] a tile below the granule of v6e, 256x256, must come with a "
      "lowering reason, found none for 64x64, which pays 16 times its work");
  EXPECT_TRUE(needs(v6e, {"--mask", "window(9, 0)", "--tile", "128x256"})
                  .starts_with("[mosaic] a tile below the granule of v6e"));
  EXPECT_EQ(needs(v6e, {"--mask", "causal"}), "");
  EXPECT_EQ(needs("", causal), "");  // the TPU is unknown
  EXPECT_EQ(needs(R"(, "generation": "v5e")",
                  {"--mask", "window(9, 0)", "--tile", "128"}),
            "");
  // Chunked takes all queries with a tile of keys; dense has no tiles.
  EXPECT_EQ(needs(v6e, {"--mask", "full | causal", "--tile", "64x256"}), "");
  for (const char* const queries : {"1", "64"}) {  // of a tile of 256 rows
    EXPECT_EQ(
        needs(v6e, {"--mask", "full", "--q-len", queries, "--kv-len", "8192"}),
        "")
        << queries;
  }
  for (const char* const queries : {"256", "512"}) {  // a worklist from 257 on
    EXPECT_EQ(needs(v6e, {"--mask", "causal", "--tile", "64", "--q-len",
                          queries}) == "",
              std::string_view(queries) == "256");
  }
}

TEST_F(Dispatch, DoctorSaysWhatIsHereAndWhatIsMissing) {
  {
    const tessera::testing::Variable python("TESSERA_PYTHON",
                                            "/nowhere/python");
    const tessera::testing::Variable a("TESSERA_PJRT_LIBTPU", nullptr);
    const tessera::testing::Variable b("TESSERA_PJRT_XLA_CPU_PJRT", nullptr);
    const tessera::testing::Variable c("TESSERA_PJRT_LAMMPS_JAX_PJRT_CPU",
                                       nullptr);
    const json d = run({"doctor"});
    EXPECT_EQ(code_, 0) << err_;
    EXPECT_EQ(d["lanes"].size(), 7u);
    EXPECT_EQ(d["isas"][0], "portable");
    ASSERT_FALSE(d["missing"].empty());
    if (d["loads_plugins"] == true) {
      ASSERT_EQ(d["plugins"].size(), 3u);
      EXPECT_EQ(d["plugins"][0]["found"], false);
      EXPECT_EQ(d["missing"][0]["command"], "pip install libtpu");
      EXPECT_EQ(d["lanes"]["xla"]["state"], "needs a plugin with a device");
    } else {
      EXPECT_EQ(d["missing"][0]["command"], "make tpu && make");
    }
    run({"doctor"}, false);
    EXPECT_NE(out_.find("\nlane        cpu         runs, up to "),
              std::string::npos)
        << out_;
  }
  const auto plugin = tessera::testing::real_plugin("xla_cpu_pjrt");
  if (tessera::testing::is_absent(plugin)) return;
  const json d = run({"doctor"});
  bool found = false;
  for (const json& p : d["plugins"]) {
    if (p["name"] != "xla_cpu_pjrt") continue;
    found = true;
    EXPECT_EQ(p["platform"], "cpu");
    EXPECT_TRUE(p["api"].get<std::string>().starts_with("0."));
    EXPECT_GE(p["devices"].size(), 1u);
  }
  EXPECT_TRUE(found) << d;
}

// A lane that does not start is replaced only with --fallback.
TEST_F(Dispatch, ALaneThatDoesNotStartGivesWayOnlyWhereThatIsAllowed) {
  const Arguments bad = {"--lane", "xla", "--plugin", "/nowhere/none.so"};
  const json strict = attend(bad);
  EXPECT_EQ(code_, 2);
  EXPECT_TRUE(
      strict["error"]["message"].get<std::string>().starts_with("[pjrt] "))
      << strict;

  Arguments lenient = bad;
  lenient.insert(lenient.end(), {"--fallback", "cpu,reference", "--check"});
  const json r = attend(lenient);
  ASSERT_EQ(code_, 0) << err_ << r;
  EXPECT_EQ(r["lane"]["requested"], "xla");
  EXPECT_EQ(r["lane"]["chosen"], "xla");
  EXPECT_EQ(r["lane"]["executed"], "cpu");
  EXPECT_EQ(r["lane"]["family"], "native");
  EXPECT_EQ(r["lane"]["fallback_allowed"], json({"cpu", "reference"}));
  EXPECT_TRUE(r["fallback"].get<std::string>().starts_with(
      "xla did not start: [pjrt] "));
  EXPECT_EQ(r["check"]["passed"], true);

  // The environment makes the cpu lane fail.
  const tessera::testing::Variable isa("TESSERA_ISA", "abacus");
  const json no_cpu = attend({});
  EXPECT_EQ(code_, 2);
  EXPECT_TRUE(
      no_cpu["error"]["message"].get<std::string>().starts_with("[cpu] "))
      << no_cpu;
  const json stepped = attend({"--fallback", "reference"});
  ASSERT_EQ(code_, 0) << err_;
  EXPECT_EQ(stepped["lane"]["requested"], "auto");
  EXPECT_EQ(stepped["lane"]["chosen"], "cpu");
  EXPECT_EQ(stepped["lane"]["executed"], "reference");

  const json none = attend(
      {"--lane", "xla", "--plugin", "/nowhere/none.so", "--fallback", "cpu"});
  EXPECT_EQ(code_, 2);
  EXPECT_TRUE(none["error"]["message"].get<std::string>().starts_with(
      "[dispatch] a lane must start, found that none did: xla did not start: "))
      << none;
}

TEST_F(Dispatch, FallbackFlagsAreChecked) {
  const auto refused = [&](const char* order) {
    const json e = attend({"--fallback", order});
    return code_ == 2 ? e["error"]["message"].get<std::string>() : "";
  };
  EXPECT_EQ(refused("cuda"),
            "[cli] --fallback must be one of cpu, reference, xla, mosaic, "
            "found 'cuda'");
  EXPECT_EQ(refused("cpu,cpu"),
            "[dispatch] a fallback is named once, found cpu twice");
  EXPECT_EQ(
      refused(""),
      "[cli] --fallback must be one of cpu, reference, xla, mosaic, found ''");
  const json e = attend({"--lane", "cpu", "--gate", "x.json"});
  EXPECT_EQ(e["error"]["message"],
            "[cli] --gate goes with --lane auto, found --lane cpu");
}

TEST_F(Dispatch, AGateTableGoesBeforeTheRules) {
  const auto plugin = tessera::testing::real_plugin("xla_cpu_pjrt");
  if (tessera::testing::is_absent(plugin)) {
    GTEST_SKIP() << plugin.error().message;
  }
  const json c = run({"choose", "--mask", "causal", "--q-len", "40", "--tile",
                      "16", "--heads", "2", "--head-dim", "16"});
  ASSERT_EQ(code_, 0) << err_;
  EXPECT_EQ(c["lane"], "cpu");
  json row = {{"kernel", "cpu/forward"},
              {"lane", "cpu"},
              {"basis", "measured"},
              {"machine", c["machine"]},
              {"generation", nullptr},
              {"class", "plain causal"},
              {"mask", "causal"},
              {"direction", "forward"},
              {"dtype", "f32"},
              {"q_len", 40},
              {"kv_len", 40},
              {"heads", 8},
              {"kv_heads", 8},
              {"head_dim", 16},
              {"v_head_dim", 16},
              {"softcap", 0},
              {"density", c["density"]},
              {"kernel_ms", 2},
              {"plain_ms", 1},
              {"kernel_cycles", nullptr},
              {"plain_cycles", nullptr},
              {"error_bar", nullptr},
              {"plain", "dense"},
              {"factor", 0.5},
              {"judgement", "passed"},
              {"error", 0.5},
              {"shape_per_step", false},
              {"verdict", "delete"},
              {"why", ""}};
  ASSERT_TRUE(
      write_file(file("gate"), json({{"schema", 3}, {"rows", {row}}}).dump())
          .ok());
  const json r =
      run({"run", "--mask", "causal", "--q-len", "40", "--tile", "16",
           "--heads", "2", "--head-dim", "16", "--gate", file("gate"),
           "--check", "--cache", "off", "--receipt", file("receipt")});
  ASSERT_EQ(code_, 0) << err_ << r;
  EXPECT_EQ(r["lane"]["executed"], "xla");
  EXPECT_EQ(r["method"], "dense");
  EXPECT_EQ(r["choice"]["gate"][0]["kernel"], "cpu/forward");
  EXPECT_EQ(r["choice"]["rule"], nullptr);
  EXPECT_EQ(r["check"]["passed"], true);
  const json other = run({"run", "--mask", "causal", "--q-len", "40", "--tile",
                          "16", "--heads", "2", "--head-dim", "16", "--gate",
                          file("gate"), "--method", "worklist"});
  EXPECT_EQ(code_, 2);
  EXPECT_EQ(other["error"]["message"],
            "[cli] --method of --lane auto must be the one that it chose, "
            "dense, found 'worklist'");
  // The row is in the receipt, so the choice can be made again.
  run({"receipt", "verify", file("receipt")});
  EXPECT_EQ(code_, 0) << out_ << err_;
  EXPECT_EQ(program({"receipt", "show", file("receipt")}), 0) << err_;
  EXPECT_NE(out_.find("gate        measured row of "), std::string::npos)
      << out_;
  EXPECT_NE(out_.find("error 0.5 of its bound, of cpu/forward\n"),
            std::string::npos)
      << out_;
}

// The same request on two generations of TPUs: a row for one generation does
// not apply to the other.
TEST_F(Dispatch, APredictedRowDecidesForItsGeneration) {
  const auto choice_on = [&](const std::string& generation, bool is_json) {
    EXPECT_TRUE(write_file(file("tpu"),
                           R"({"cpu": "A CPU", "threads": 8, "isas": ["avx2"],
                       "plugins": [{"name": "libtpu", "platform": "tpu",
                                    "devices": 4, "generation": ")" +
                               generation + R"("}]})")
                    .ok());
    return run({"choose", "--mask", "causal", "--q-len", "2048", "--dtype",
                "bf16", "--heads", "8", "--head-dim", "128", "--machine",
                file("tpu"), "--gate", file("gate")},
               is_json);
  };
  json row = {{"kernel", "mosaic/forward"},
              {"lane", "mosaic"},
              {"basis", "predicted"},
              {"machine", nullptr},
              {"generation", "v6e"},
              {"class", "plain causal"},
              {"mask", "causal"},
              {"direction", "forward"},
              {"dtype", "bf16"},
              {"q_len", 2048},
              {"kv_len", 2048},
              {"heads", 8},
              {"kv_heads", 8},
              {"head_dim", 128},
              {"v_head_dim", 128},
              {"softcap", 0},
              {"density", 0.5625},
              {"kernel_ms", nullptr},
              {"plain_ms", nullptr},
              {"kernel_cycles", 80000},
              {"plain_cycles", 200000},
              {"error_bar", 1.28},
              {"plain", "worklist"},
              {"factor", 2.5},
              {"judgement", "passed"},
              {"error", 0.25},
              {"shape_per_step", false},
              {"verdict", "unmeasured"},
              {"why", ""}};
  const auto table = [&](const json& one) {
    EXPECT_TRUE(
        write_file(file("rows"), json({{"schema", 3}, {"rows", {one}}}).dump())
            .ok());
    program({"gate", "--rows", file("rows"), "-o", file("gate")});
    ASSERT_EQ(code_, 0) << err_;
  };
  table(row);
  EXPECT_NE(out_.find("80000 cycles    200000 cycles    2.50    0.25  "
                      "experimental, predicted, known of another kernel's "
                      "forward passes without documents or softcap\n"),
            std::string::npos)
      << out_;
  const json on = choice_on("v6e", true);
  ASSERT_EQ(code_, 0) << err_;
  EXPECT_EQ(on["lane"], "mosaic");
  EXPECT_EQ(on["gate"][0]["basis"], "predicted");
  EXPECT_EQ(on["gate"][0]["verdict"], "experimental");
  EXPECT_EQ(on["rule"], nullptr);
  EXPECT_EQ(on["machine"], "A CPU, 8 threads, avx2, 4 x tpu v6e");
  EXPECT_EQ(
      on["reason"],
      "predicted for v6e at density 0.562, of 8 heads and 2048 x 2048 "
      "tokens: mosaic/forward takes 80000 cycles and xla's worklist "
      "program 200000, 2.5 times apart, beyond the error bar of "
      "1.28, known of another kernel's forward passes without documents or "
      "softcap (verdict: experimental)");
  choice_on("v6e", false);
  EXPECT_NE(out_.find("gate        predicted row of v6e: causal, 2048 x 2048 "
                      "tokens, density 0.562, passed, error 0.25 of its bound"),
            std::string::npos)
      << out_;
  const json off = choice_on("v5e", true);
  EXPECT_EQ(off["lane"], "xla");
  EXPECT_EQ(off["gate"], json::array());
  EXPECT_EQ(off["rule"]["name"], "plain causal");
  EXPECT_EQ(off["rejected"]["mosaic"], "it could, but xla comes first");

  row["factor"] = 1.2;
  row["plain_cycles"] = 96000;
  table(row);
  const json tie = choice_on("v6e", true);
  EXPECT_EQ(tie["lane"], "xla");
  EXPECT_EQ(tie["method"], "worklist");
  EXPECT_EQ(
      tie["reason"],
      "predicted for v6e at density 0.562, of 8 heads and 2048 x 2048 "
      "tokens: mosaic/forward takes 80000 cycles and xla's worklist "
      "program 96000, 1.2 times apart, a tie within the error bar of "
      "1.28, known of another kernel's forward passes without documents or "
      "softcap (verdict: delete)");
  // An unjudged kernel is not chosen, whatever its figures.
  row["factor"] = 2.5;
  row["plain_cycles"] = 200000;
  row["judgement"] = "unjudged";
  row["error"] = nullptr;
  table(row);
  EXPECT_EQ(choice_on("v6e", true)["gate"], json::array());
}

// A random request gets a lane that runs and agrees with fp64, or an error
// that says what is missing.
TEST_F(Dispatch, RandomRequestsRunOrSayWhatIsMissing) {
  const char* masks[] = {"full",
                         "causal",
                         "causal & window(7, 0)",
                         "causal & documents",
                         "segments | causal",
                         "causal | prefix",
                         "!causal & chunk(16)",
                         "sink(3) | window(5, 2)",
                         "causal & (window(9, 0) | sink(2)) & documents"};
  std::mt19937 random(20);
  const auto pick = [&](const auto&... all) {
    const std::string values[] = {std::string(all)...};
    return values[random() % sizeof...(all)];
  };
  int ran = 0, missing = 0;
  for (int i = 0; i < 60; ++i) {
    const std::string mask = masks[random() % std::size(masks)];
    const std::string tokens = pick("17", "40", "64", "129");
    Arguments a = {"run",
                   "--mask",
                   mask,
                   "--q-len",
                   tokens,
                   "--tile",
                   pick("8", "16", "32x16", "128"),
                   "--heads",
                   "4",
                   "--kv-heads",
                   pick("1", "2", "4"),
                   "--head-dim",
                   pick("8", "16", "64", "12"),
                   "--dtype",
                   pick("f32", "bf16", "f16"),
                   "--softcap",
                   pick("0", "15"),
                   "--seed",
                   std::to_string(i),
                   "--check"};
    if (mask.find("documents") != std::string::npos ||
        mask.find("segments") != std::string::npos) {
      a.insert(a.end(), {"--docs", "lengths:7,5,4"});
    }
    if (mask.find("prefix") != std::string::npos) {
      a.insert(a.end(), {"--prefix", "5"});
    }
    if (random() % 2 == 0) a.emplace_back("--backward");
    if (random() % 2 == 0) a.emplace_back("--sink-logits");
    const json r = run(a);
    if (code_ == 0) {
      ++ran;
      EXPECT_EQ(r["check"]["passed"], true) << r;
      EXPECT_EQ(r["lane"]["executed"], r["lane"]["chosen"]);
      EXPECT_EQ(r["choice"]["rejected"].size(), 6u);
    } else {
      ++missing;
      ASSERT_EQ(code_, 2) << r;
      EXPECT_NE(r["error"]["message"].get<std::string>().find("multiple of 8"),
                std::string::npos)
          << r;
    }
  }
  EXPECT_GT(ran, 20);
  EXPECT_GT(missing, 3);
}

}  // namespace
}  // namespace tessera::cli
