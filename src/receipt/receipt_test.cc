// receipt/receipt_test.cc: tests that a receipt's JSON has every field, and no
// number that JSON does not allow.
#include "receipt/receipt.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "receipt/machine.h"
#include "receipt/read.h"
#include "receipt/sink_telemetry.h"

namespace tessera::receipt {
namespace {

using nlohmann::json;

Receipt example() {
  Receipt r;
  r.version = "0.1.0";
  r.lane = {"auto", "default", "cpu", "cpu", "native", "executed", {}};
  r.isa = "avx2";
  r.threads = 2;
  r.device = "A CPU";
  r.request.masks = {"causal"};
  r.request.batch = "2";
  r.request.q_len = r.request.kv_len = "8";
  r.request.tile = "16x32";
  r.request.docs = "lengths:8";
  r.request.max_steps = "9";
  r.shape = {{4, 2, 16, 8, {}, 30}, 0.25, "f32", "bhsd", true};
  r.inputs = {7, "", {{"q", "00"}}, {"q"}};
  r.tiles_run = 3;
  r.tiles_skipped = 1;
  r.pairs_legal = 1000;
  r.pairs_run = 1024;
  r.plan_ms = 1;
  r.prepare_ms = 2;
  r.forward_ms = 4;
  r.check = {"full", 10, 1e-7, 0.5, true, "out[0, 0, 0, 0]"};
  r.output_digest = "ff";
  return r;
}

TEST(Receipt, HoldsEveryField) {
  const json j = json::parse(receipt_json(example()));
  const std::vector<std::string> names = {
      "artifact", "cache_hits",     "check",      "choice",       "compiles",
      "contract", "device",         "direction",  "facts_digest", "fallback",
      "gflops",   "inputs",         "isa",        "kernels",      "lane",
      "lowering", "machine",        "method",     "ms",           "numbers",
      "output",   "pairs",          "parameters", "plan",         "plan_file",
      "plugin",   "receipt_digest", "request",    "routing",      "row_sum",
      "schema",   "settings",       "shape",      "shards",       "tessera",
      "threads",  "tiles",          "warnings"};
  std::vector<std::string> found;
  for (const auto& [name, unused] : j.items()) found.push_back(name);
  EXPECT_EQ(found, names);
  EXPECT_EQ(j["schema"], 13);
  EXPECT_EQ(j["lane"]["source"], "default");
  EXPECT_EQ(j["request"],
            json::parse(R"({"mask": ["causal"], "batch": 2, "q_len": 8,
                            "kv_len": 8, "tile": [16, 32],
                            "docs": "lengths:8", "max_steps": 9})"));
  EXPECT_EQ(j["tiles"], json({{"run", 3}, {"skipped", 1}}));
  EXPECT_EQ(j["ms"]["total"], 7.0);
  EXPECT_TRUE(j["fallback"].is_null());
  EXPECT_EQ(j["check"]["max_bound_ratio"], 0.5);
}

// A field that a lane does not have is null or empty, never a placeholder.
TEST(Receipt, TellsOwnLanesFromPlugins) {
  const json own = json::parse(receipt_json(example()));
  EXPECT_EQ(own["isa"], "avx2");
  EXPECT_EQ(own["threads"], 2);
  EXPECT_TRUE(own["plugin"].is_null());
  EXPECT_TRUE(own["method"].is_null());
  EXPECT_TRUE(own["numbers"].is_null());
  EXPECT_TRUE(own["row_sum"].is_null());
  EXPECT_EQ(own["kernels"], json::object());
  EXPECT_EQ(own["cache_hits"], json({{"memory", 0}, {"disk", 0}}));
  EXPECT_EQ(own["warnings"], json::array());

  Receipt r = example();
  r.lane = {"xla", "flag", "xla", "xla", "xla", "executed", {}};
  r.isa.reset();
  r.threads.reset();
  r.plugin = Receipt::Plugin{"/a\xff.so", "0.81", "cpu", "v\xfe", "cpu 0", 0};
  r.method = "worklist";
  r.kernels = {{"backward", "bb"}, {"forward", "aa"}};
  r.compiles = 1;
  r.cache_hits = {2, 3};
  r.compile_ms = 100;
  r.transfer_ms = 10;
  r.warnings = {"disk \xff full"};
  const json j = json::parse(receipt_json(r));
  EXPECT_TRUE(j["isa"].is_null());
  EXPECT_TRUE(j["threads"].is_null());
  EXPECT_EQ(j["plugin"], json({{"file", "'/a\\xff.so'"},
                               {"api", "0.81"},
                               {"platform", "cpu"},
                               {"platform_version", "'v\\xfe'"},
                               {"device", "cpu 0"},
                               {"number", 0}}));
  EXPECT_EQ(j["method"], "worklist");
  EXPECT_EQ(j["kernels"], json({{"forward", "aa"}, {"backward", "bb"}}));
  EXPECT_EQ(j["compiles"], 1);
  EXPECT_EQ(j["cache_hits"], json({{"memory", 2}, {"disk", 3}}));
  EXPECT_EQ(j["ms"]["compile"], 100.0);
  EXPECT_EQ(j["ms"]["transfer"], 10.0);
  EXPECT_EQ(j["ms"]["total"], 117.0);
  EXPECT_EQ(j["warnings"], json({"'disk \\xff full'"}));
}

// A run that routed tells what was picked, and where a gradient flows.
TEST(Receipt, TellsRoutingWithItsPhases) {
  Receipt r = example();
  EXPECT_TRUE(json::parse(receipt_json(r))["routing"].is_null());
  RouteSettings settings;
  settings.rule = RouteRule::query_head;
  r.routing = Receipt::Routing{false, settings, 2,  100, 3,   40,  20,
                               5,     6,        70, 90,  640, 4096};
  r.route_ms = 0.5;
  const json j = json::parse(receipt_json(r));
  EXPECT_EQ(j["ms"]["route"], 0.5);
  EXPECT_EQ(j["ms"]["total"], 7.5);
  const json& n = j["routing"];
  EXPECT_EQ(n["settings"], json({{"rule", "query-head"},
                                 {"top", 8},
                                 {"block", 256},
                                 {"compression", 128},
                                 {"stride", 64},
                                 {"query_tile", 256},
                                 {"kv_tile", 1024},
                                 {"sink_blocks", 0},
                                 {"hierarchical", false},
                                 {"meta_ratio", 8},
                                 {"top_metas", 16},
                                 {"union_by", "bitmap"},
                                 {"meaning", "exact"},
                                 {"strict", false}}));
  EXPECT_EQ(n["given"], false);
  EXPECT_EQ(n["heads"], 2);
  EXPECT_EQ(n["picks"], 100);
  EXPECT_EQ(n["removed"], 3);
  EXPECT_EQ(n["widest_union"], 5);
  EXPECT_EQ(n["union_capacity"], 6);
  EXPECT_EQ(n["needed_keys"], 70);
  EXPECT_EQ(n["read_keys"], 90);
  EXPECT_EQ(n["extra_bytes"], 640);
  EXPECT_EQ(n["cache_bytes"], 4096);
  EXPECT_EQ(n["phases"][0]["gradient"], "stop_gradient");
  EXPECT_EQ(n["phases"][1]["gradient"], "stop_gradient");
  EXPECT_EQ(n["phases"][2]["gradient"], "differentiable");
}

TEST(Receipt, CountsUsefulWork) {
  Receipt r = example();
  // 4 D a pair, D = (16 + 8) / 2.
  EXPECT_EQ(r.useful_flop(), 1000.0 * 4 * 12);
  EXPECT_DOUBLE_EQ(r.useful_gflops_due(), 48000 / 4e-3 / 1e9);
  r.backward = true;
  EXPECT_EQ(r.useful_flop(), 1000.0 * 14 * 12);
  r.forward_ms = 0;
  EXPECT_EQ(r.useful_gflops_due(), 0);
}

TEST(Receipt, HasNoNullForANumber) {
  Receipt r = example();
  r.check.max_error = INFINITY;
  r.check.max_bound_ratio = std::nan("");
  r.shape.scale = -INFINITY;
  const json j = json::parse(receipt_json(r));
  EXPECT_EQ(j["check"]["max_error"], "inf");
  EXPECT_EQ(j["check"]["max_bound_ratio"], "nan");
  EXPECT_EQ(j["shape"]["scale"], "-inf");
}

TEST(Receipt, TakesNamesThatAreNotText) {
  Receipt r = example();
  r.inputs.file = "a\xff.safetensors";
  EXPECT_EQ(json::parse(receipt_json(r))["inputs"]["file"],
            "'a\\xff.safetensors'");
}

// A receipt with the most telemetry that a run may ask for is small enough to
// be read again.
TEST(Receipt, HoldsSinkTelemetryUpToItsLimit) {
  for (const int64_t heads : {1, 128}) {
    const auto n = static_cast<size_t>(heads);
    Receipt r = example();
    r.sink_telemetry = Receipt::SinkTelemetry();
    Receipt::SinkTelemetry::Document worst;
    worst.batch_row = kMaxTokens;
    worst.document = kMaxTokens;
    worst.queries.assign(n, kMaxTokens);
    worst.mass.assign(n, 2.2250738585072014e-308);
    worst.entropy.assign(n, 2.2250738585072014e-308);
    r.sink_telemetry->documents.assign(
        static_cast<size_t>(max_sink_documents(heads)), worst);
    EXPECT_LE(receipt_json(r, 2).size(),
              static_cast<size_t>(kMaxReceiptBytes) * 4 / 5);
  }
}

// Runs in a process of its own, since a lowered limit cannot be raised again.
// The limit leaves room: a sanitizer may map more memory at any allocation.
TEST(ReceiptMachineDeathTest, KnowsTheLimitOfTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        constexpr int64_t kRoom = 64 << 20;
        int64_t pages = 0;
        // Stays open to the end: freeing its buffer could unmap memory.
        std::ifstream statm("/proc/self/statm");
        statm >> pages;
        rlimit limit{};
        limit.rlim_cur = limit.rlim_max =
            static_cast<rlim_t>(pages * ::sysconf(_SC_PAGESIZE) + kRoom);
        const int64_t before = available_memory();
        setrlimit(RLIMIT_AS, &limit);
        const int64_t after = available_memory();
        bool known = before > kRoom && after > kRoom / 2 && after <= kRoom;
#ifndef TESSERA_SANITIZED
        // The process has already mapped more than this limit.
        limit.rlim_cur = 1;
        setrlimit(RLIMIT_AS, &limit);
        known = known && available_memory() == 0;
#endif
        _exit(known ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST(ReceiptMachine, IsDescribed) {
  EXPECT_NE(cpu_model(), "");
  EXPECT_GT(available_memory(), 1 << 20);
}

TEST(ReceiptMachine, WhatDoesNotFitItsMemoryIsRefused) {
  EXPECT_TRUE(check_free("run", 8, "the arrays", 8).ok());
  const auto over = check_free("run", 2.5e12, "the arrays", 2e12);
  ASSERT_FALSE(over.ok());
  EXPECT_EQ(over.error().kind, ErrorKind::limit);
  EXPECT_EQ(over.error().message,
            "[run] the arrays must fit the memory that is free, found 2.5 T "
            "bytes for them");
  EXPECT_TRUE(check_free("run", 0, "the arrays").ok());
  EXPECT_FALSE(check_free("run", 1e300, "the arrays").ok());
}

}  // namespace
}  // namespace tessera::receipt
