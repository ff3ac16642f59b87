// bench/attention/attention_test.cc: the cases of `tessera-bench attention`,
// figures derived from measurements, and reading the peers' lines.
#include <gtest/gtest.h>

#include <algorithm>

#include "bench/attention/peers.h"
#include "bench/attention/rows.h"
#include "bench/harness/cases.h"
#include "tessera/mask.h"

namespace tessera::bench {
namespace {

using nlohmann::json;

BenchRow row_of(std::string_view name, Dtype dtype, Direction direction) {
  BenchRow row;
  row.what = find_case(name);
  row.dtype = dtype;
  row.direction = direction;
  row.tokens = 4096;
  row.head_dim = 128;
  row.threads = 2;
  row.pairs = 1000000;
  row.peaks = {200, 400, 50};
  row.every_peer_ran = true;
  return row;
}

OurTimes ours(std::vector<double> ms) {
  OurTimes out;
  out.ms = std::move(ms);
  out.prepare_ms = 0.5;
  return out;
}

PeerTimes peer(const std::string& name, double ms) {
  PeerTimes out;
  out.peer = name;
  out.times = RunTimes{ms, ms, 3};
  return out;
}

TEST(BenchCases, EveryMaskParsesAndIsFoundByItsName) {
  std::vector<std::string_view> names;
  for (const AttentionCase& c : attention_cases()) {
    EXPECT_TRUE(parse_mask(c.mask).ok()) << c.name;
    EXPECT_EQ(find_case(c.name), &c);
    EXPECT_EQ(c.documents, c.mask.find("documents") != std::string_view::npos);
    names.push_back(c.name);
  }
  EXPECT_EQ(names, (std::vector<std::string_view>{"full", "causal", "softcap",
                                                  "window", "documents", "both",
                                                  "decode"}));
  EXPECT_EQ(find_case("fool"), nullptr);
}

TEST(BenchCases, DecodeHasItsOwnShape) {
  const CaseShape decode = shape_of(*find_case("decode"), 1024);
  EXPECT_EQ(decode.q_len, 1);
  EXPECT_EQ(decode.kv_len, 32768);
  EXPECT_EQ(decode.heads, 4 * decode.kv_heads);
  const CaseShape full = shape_of(*find_case("full"), 1024);
  EXPECT_EQ(full.q_len, 1024);
  EXPECT_EQ(full.heads, full.kv_heads);
}

TEST(BenchCases, PackedIdsAreEightDocumentsAtAnyLength) {
  for (const int64_t tokens : {64, 1000, 1024, 4096, 8192, 65536, 100000}) {
    const std::vector<int32_t> ids = packed_ids(tokens);
    ASSERT_EQ(static_cast<int64_t>(ids.size()), tokens);
    EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
    EXPECT_EQ(ids.front(), 0);
    EXPECT_EQ(ids.back(), 7);
    for (int32_t id = 0; id < 8; ++id) {
      EXPECT_NE(std::find(ids.begin(), ids.end(), id), ids.end()) << tokens;
    }
  }
  const std::vector<int32_t> ids = packed_ids(1024);
  EXPECT_EQ(ids[585], 0);
  EXPECT_EQ(ids[586], 1);
  EXPECT_EQ(ids[932], 6);
  EXPECT_EQ(ids[933], 7);
}

TEST(BenchRows, TimesAreTheLeastAndTheMiddle) {
  const RunTimes odd = times_of({3, 1, 2});
  EXPECT_EQ(odd.best_ms, 1);
  EXPECT_EQ(odd.median_ms, 2);
  EXPECT_EQ(odd.runs, 3);
  EXPECT_EQ(times_of({4, 1, 2, 3}).median_ms, 2.5);
  const OurTimes both = joined(ours({3, 2}), ours({1}));
  EXPECT_EQ(times_of(both.ms).best_ms, 1);
  EXPECT_EQ(both.ms.size(), 3u);
}

TEST(BenchRows, OnlyLegalPairsCount) {
  // 4 * 128 operations, a million pairs, eight heads: 4.096 G.
  const BenchRow forward = row_of("causal", Dtype::f32, Direction::forward);
  EXPECT_DOUBLE_EQ(gflops(forward, 1000), 4.096);
  const BenchRow both = row_of("causal", Dtype::f32, Direction::backward);
  EXPECT_DOUBLE_EQ(gflops(both, 1000), 4.096 * 14 / 4);
  // K and V: 2 * 8 heads * 32768 keys * 128 * 2 bytes.
  const BenchRow decode = row_of("decode", Dtype::bf16, Direction::forward);
  EXPECT_DOUBLE_EQ(gbytes(decode, 1000), 0.134217728);
}

TEST(BenchRows, SharesAreOfThePeakThatBounds) {
  BenchRow row = row_of("causal", Dtype::f32, Direction::forward);
  EXPECT_FALSE(share_of_peak(row));
  row.ours = ours({40.96, 50});  // 100 GFLOP/s
  EXPECT_NEAR(*share_of_peak(row), 0.5, 1e-12);
  row.dtype = Dtype::bf16;
  EXPECT_NEAR(*share_of_peak(row), 0.25, 1e-12);
  row.peaks.bf16_dot_gflops = 0;  // the ISA has no such instruction
  EXPECT_FALSE(share_of_peak(row));
  BenchRow decode = row_of("decode", Dtype::bf16, Direction::forward);
  decode.ours = ours({134.217728 / 40});  // 40 GB/s
  EXPECT_NEAR(*share_of_peak(decode), 0.8, 1e-9);
}

TEST(BenchRows, TheBestPeerIsTheQuickestThatRan) {
  BenchRow row = row_of("causal", Dtype::f32, Direction::forward);
  row.ours = ours({10});
  EXPECT_EQ(best_peer(row), nullptr);
  EXPECT_FALSE(ratio(row));
  PeerTimes failed;
  failed.peer = "a";
  failed.why = "it fell over";
  row.peers = {failed, peer("b", 13), peer("c", 12)};
  EXPECT_EQ(best_peer(row)->peer, "c");
  EXPECT_DOUBLE_EQ(*ratio(row), 1.2);
}

TEST(BenchRows, AGoalIsReachedOnlyBesideEveryPeer) {
  BenchRow row = row_of("causal", Dtype::f32, Direction::forward);  // 1.15
  EXPECT_FALSE(reached(row).has_value());
  row.ours = ours({10});
  EXPECT_FALSE(reached(row).has_value());
  row.peers = {peer("b", 12)};
  EXPECT_EQ(reached(row), true);
  row.every_peer_ran = false;
  EXPECT_FALSE(reached(row).has_value());
  row.peers = {peer("b", 11)};  // the goal is missed already
  EXPECT_EQ(reached(row), false);

  BenchRow full = row_of("full", Dtype::f32, Direction::forward);
  full.ours = ours({40.96 * 200 / 2 / 160});  // 160 of 200 GFLOP/s
  full.peers = {peer("b", 1000)};
  EXPECT_EQ(reached(full), false);  // the goal is 85%
  full.peaks.fma_gflops = 180;
  EXPECT_EQ(reached(full), true);
  full.peaks.fma_gflops = 0;
  EXPECT_FALSE(reached(full).has_value());

  BenchRow none = row_of("softcap", Dtype::bf16, Direction::forward);
  none.ours = ours({10});
  none.peers = {peer("b", 1)};
  EXPECT_FALSE(reached(none).has_value());
}

TEST(BenchRows, JsonHasEveryField) {
  BenchRow row = row_of("both", Dtype::f32, Direction::forward);
  row.ours = ours({10, 12, 11});
  PeerTimes failed;
  failed.peer = "a";
  failed.why = "it fell over";
  row.peers = {peer("b", 15), failed};
  const json out = row_json(row);
  EXPECT_EQ(out["case"], "both");
  EXPECT_EQ(out["mask"], "causal & window(1023, 0) & documents");
  EXPECT_EQ(out["dtype"], "f32");
  EXPECT_EQ(out["direction"], "forward");
  EXPECT_EQ(out["q_len"], 4096);
  EXPECT_EQ(out["pairs"], 1000000);
  EXPECT_EQ(out["ours"]["ms"], 10);
  EXPECT_EQ(out["ours"]["median_ms"], 11);
  EXPECT_EQ(out["ours"]["runs"], 3);
  EXPECT_NEAR(out["ours"]["gflops"].get<double>(), 409.6, 1e-9);
  EXPECT_EQ(out["peers"][0]["ms"], 15);
  EXPECT_EQ(out["peers"][1]["why"], "it fell over");
  EXPECT_FALSE(out["peers"][1].contains("ms"));
  EXPECT_EQ(out["best_peer"], "b");
  EXPECT_EQ(out["ratio"], 1.5);
  EXPECT_EQ(out["goal"]["ratio"], 1.4);
  EXPECT_TRUE(out["goal"]["share"].is_null());
  EXPECT_EQ(out["reached"], true);

  BenchRow unmeasured = row_of("full", Dtype::bf16, Direction::forward);
  unmeasured.why = "no such instruction";
  const json other = row_json(unmeasured);
  EXPECT_TRUE(other["ours"].is_null());
  EXPECT_EQ(other["why"], "no such instruction");
  EXPECT_TRUE(other["reached"].is_null());
}

TEST(BenchRows, TableSaysWhatIsMissing) {
  BenchRow row = row_of("causal", Dtype::f32, Direction::forward);
  row.why = "no such instruction";
  EXPECT_NE(table_line(row).find("not measured: no such instruction"),
            std::string::npos);
  row.ours = ours({10});
  EXPECT_NE(table_line(row).find("1.15 not measured"), std::string::npos);
  row.peers = {peer("b", 11)};
  EXPECT_NE(table_line(row).find("1.10 1.15 MISSED"), std::string::npos);
  row.peers = {peer("b", 12)};
  EXPECT_NE(table_line(row).find("1.20 1.15 reached"), std::string::npos);
}

constexpr const char* kLines =
    "a library says hello\n"
    "{\"peer\": \"flex\", \"versions\": {\"torch\": \"2\"}}\n"
    "[1, 2]\n"
    "{\"peer\": \"flex\", \"case\": \"causal\", \"dtype\": \"f32\","
    " \"direction\": \"forward\", \"ms\": 12.5, \"median_ms\": 13,"
    " \"runs\": 4, \"pairs\": 1000000, \"error\": 1e-6}\n"
    "{\"peer\": \"flex\", \"case\": \"window\", \"dtype\": \"f32\","
    " \"direction\": \"forward\", \"state\": \"not measured\","
    " \"why\": \"it fell over\"}\n"
    "{\"peer\": \"flex\", \"case\": \"both\", \"ms\": \"soon\"}\n"
    "{\"peer\": 7, \"case\": \"both\", \"ms\": 1}\n"
    "{\"peer\": \"flex\", \"case\": \"docu";

TEST(BenchPeers, LinesAreReadAndTheRestIsPassedOver) {
  json versions;
  const std::vector<PeerLine> lines = parse_peer_lines(kLines, versions);
  EXPECT_EQ(versions, json({{"torch", "2"}}));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0].times.times->best_ms, 12.5);
  EXPECT_EQ(lines[0].times.times->runs, 4);
  EXPECT_EQ(lines[0].pairs, 1000000);
  EXPECT_FALSE(lines[1].times.times);
  EXPECT_EQ(lines[1].times.why, "it fell over");
  EXPECT_EQ(lines[2].times.why, "its line has no time");
}

TEST(BenchPeers, ARowTakesItsOwnLinesAndOnlyEqualWork) {
  PeerRun run;
  run.lines = parse_peer_lines(kLines, run.versions);
  std::vector<BenchRow> rows = {
      row_of("causal", Dtype::f32, Direction::forward),
      row_of("causal", Dtype::f32, Direction::backward),
      row_of("causal", Dtype::bf16, Direction::forward)};
  join_peers(run, rows);
  ASSERT_EQ(rows[0].peers.size(), 1u);
  EXPECT_TRUE(rows[0].peers[0].times);
  EXPECT_TRUE(rows[0].every_peer_ran);
  EXPECT_TRUE(rows[1].peers.empty());
  EXPECT_TRUE(rows[2].peers.empty());

  run.why = "killed after 300 s";
  rows[0].peers.clear();
  rows[0].pairs = 999999;
  join_peers(run, rows);
  EXPECT_FALSE(rows[0].every_peer_ran);
  EXPECT_FALSE(rows[0].peers[0].times);
  EXPECT_EQ(rows[0].peers[0].why,
            "it counts 1000000 legal pairs, ours are 999999");
}

TEST(BenchPeers, WithoutAnInterpreterAPeerIsNotMeasured) {
  const PeerScript script = {"none", "none.py", "TESSERA_NO_SUCH_PYTHON"};
  const PeerRun run = run_peer(script, PeerRequest{});
  EXPECT_EQ(run.why, "TESSERA_NO_SUCH_PYTHON is not set");
  EXPECT_TRUE(run.lines.empty());
}

}  // namespace
}  // namespace tessera::bench
