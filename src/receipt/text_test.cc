// receipt/text_test.cc: tests the text of receipts of each kind.
#include "receipt/text.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/sample_receipts.h"

namespace tessera::receipt {
namespace {

const std::string kDigits(32, 'b');

// `json` is a receipt that the reader accepts.
std::string shown(const std::string& json) {
  const auto text = receipt_text(json);
  EXPECT_TRUE(text.ok()) << text.error().message;
  return text ? *text : "";
}

std::string digest_line(const std::string& json) {
  const auto claim = parse_receipt(json);
  return "digest      " + claim->digest + ", that of its fields\n";
}

Receipt operation() { return testing::sample_operation(kDigits); }

TEST(ReceiptText, OfAnOperationIsALineForEachThing) {
  const std::string json = receipt_json(operation());
  EXPECT_EQ(shown(json),
            "asked       jax_bridge (by command)\n"
            "executed    jax_bridge, family tpu/jax\n"
            "ran         jax_bridge lane, family tpu/jax\n"
            "plugin      'a.so', PJRT 0.81, cpu 0 of platform cpu\n"
            "operation   rms_norm norm\n"
            "artifact    'norm.mlirbc', exported by JAX 0.7.2, digest " +
                kDigits +
                "\n"
                "inputs      'x' F32 [2, 3] (seed 7)\n"
                "outputs     'y' F32 [2, 3]\n"
                "key         " +
                kDigits +
                ", wider than a kernel contract: the artifact and its shapes\n"
                "programs    1 compiled, 0 from memory, 0 from disk\n"
                "time        compile 0 ms, transfer 0 ms, run 2 ms\n"
                "check       none\n"
                "output      " +
                kDigits + "\n" + digest_line(json));
}

TEST(ReceiptText, OfACallersArraysNamesNoSeed) {
  Receipt r = operation();
  r.artifact->file.clear();
  r.inputs.drawn.clear();
  const std::string text = shown(receipt_json(r));
  EXPECT_NE(text.find("\nartifact    the caller's, exported by JAX"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("\ninputs      'x' F32 [2, 3] (the caller's)\n"),
            std::string::npos)
      << text;
}

TEST(ReceiptText, OfAPlanSaysWhyNoOtherLane) {
  Receipt r;
  r.version = "0.1.0";
  r.lane = {"auto", "default", "cpu", "cpu", "native", "executed", {}};
  r.choice.request_class = "plain causal";
  r.choice.reason = "the only device is a CPU";
  r.choice.rejected = {{"xla", "a"}, {"mosaic", "b"}};
  r.isa = "avx2";
  r.threads = 2;
  r.device = "A CPU";
  r.request.masks = {"causal"};
  r.request.batch = "1";
  r.request.q_len = r.request.kv_len = "8";
  r.request.tile = "16x32";
  r.shape = {{4, 2, 16, 8, {}, 30}, 0.25, "f32", "bhsd", true};
  r.tiles_run = 3;
  r.pairs_legal = 1000;
  r.pairs_run = 1024;
  r.contract = r.plan_digest = kDigits;
  EXPECT_EQ(text_of(r),
            "ran         cpu lane (chosen), avx2, 2 threads, A CPU\n"
            "choice      the only device is a CPU\n"
            "mask        causal\n"
            "arrays      1 batch row, 8 x 8 tokens, 4 heads (2 K/V), head dim "
            "16, values 8, f32 bhsd\n"
            "tiles       3 run, 0 skipped\n"
            "pairs       1 k legal, 1.02 k scored\n"
            "time        plan 0 ms, prepare 0 ms, forward 0 ms\n"
            "speed       0 GFLOP/s, legal pairs only\n"
            "output      none\n");
  const std::string whole = text_of(r, true);
  EXPECT_TRUE(
      whole.starts_with("asked       auto (by default)\n"
                        "chosen      cpu: the only device is a CPU\n"
                        "executed    cpu, family native\n"
                        "not mosaic  b\n"
                        "not xla     a\n"
                        "ran         cpu lane"))
      << whole;
  EXPECT_TRUE(whole.ends_with("check       none\ncontract    " + kDigits +
                              "\nplan        " + kDigits +
                              "\noutput      none\n"))
      << whole;
}

// If there are more layers than routes, the routes repeat.
TEST(ReceiptText, OfATrainingRunNamesClusteredLayers) {
  Receipt r;
  r.kind = Kind::training;
  r.training.spec = "xla";
  r.training.model =
      R"({"layers": 3, "routes": [{"top": 4, "block": 64}, null]})";
  const std::string text = text_of(r);
  EXPECT_TRUE(text.starts_with("model       3 layers, 0 parameters; spec xla"))
      << text;
  EXPECT_NE(text.find("\nclustered   routed(4, 64) by kv-head within the step: "
                      "layers 0, 2\n"),
            std::string::npos)
      << text;
}

TEST(ReceiptText, WhatIsWrongIsSaid) {
  std::string json = receipt_json(operation());
  json.replace(json.find("rms_norm"), 8, "rms_more");
  const std::string text = shown(json);
  EXPECT_NE(text.find("\ndigest      WRONG: [receipt] receipt_digest must be"),
            std::string::npos)
      << text;
  const auto refused = receipt_text("{}");
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(refused.error().message.starts_with("[receipt] "))
      << refused.error().message;
}

}  // namespace
}  // namespace tessera::receipt
