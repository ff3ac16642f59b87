// lanes/splash/lane_test.cc: JAX's Splash kernel, interpreted, with our
// MaskInfo on real plugins: results within bounds, and one compile per
// artifact.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/files.h"
#include "tessera/receipt.h"
#include "tessera/session.h"
#include "tests/attention_case.h"
#include "tests/cpu_plugin.h"
#include "tests/heap.h"
#include "tests/layers.h"
#include "tests/spans.h"

namespace tessera::splash {
namespace {

using nlohmann::json;
using testing::AttentionArrays;
using testing::AttentionCase;
using testing::Layout;

constexpr int64_t kQueries = 256, kKeys = 384, kBatch = 2;

BridgeArtifact artifact_of(const std::string& name) {
  const std::string path = "tests/golden/bridge/" + name;
  return {*read_file(path + ".mlirbc", 1 << 20),
          *parse_bridge_spec(*read_file(path + ".json", 1 << 20))};
}

// Ids of two names. same(a): runs of `length` tokens, every other run in no
// group. same(b): every fifth of the first 128 tokens.
void add_groups(int32_t length, testing::RandomCase& c) {
  c.same_a.emplace();
  c.same_b.emplace();
  for (int32_t i = 0; i < kBatch * kKeys; ++i) {
    const int32_t run = i / length;
    c.same_a->push_back(run % 2 == 0 ? run : -1);
    c.same_b->push_back(i % kKeys < 128 && i % 5 == 0 ? i % 3 : -1);
  }
}

// A tree: a trunk of `length` tokens that all tokens see, and branches of as
// many tokens, each seen only by itself.
void add_tree(int32_t length, testing::RandomCase& c) {
  c.tree_enter.emplace();
  c.tree_leave.emplace();
  const auto keys = static_cast<int32_t>(kKeys);
  for (int32_t i = 0; i < kBatch * keys; ++i) {
    const int32_t at = i % keys;
    c.tree_enter->push_back(at);
    c.tree_leave->push_back(
        at < length ? keys : std::min(keys, (at / length + 1) * length));
  }
}

// Two picks per query, of blocks of 64 keys. The two halves of a query tile
// pick the two halves of key column 0 or 1 (only 0 in the second batch row).
// Queries also alternate between the halves of column 2, except every seventh.
void add_picks(testing::RandomCase& c) {
  c.picks.emplace();
  c.pick_k = 2;
  for (int32_t b = 0; b < kBatch; ++b) {
    for (int32_t i = 0; i < kQueries; ++i) {
      const int32_t column = b == 0 ? i / 64 % 2 : 0;
      c.picks->push_back(2 * column + (i / 32 + b) % 2);
      c.picks->push_back(i % 7 == 0 ? -1 : 4 + i % 2);
    }
  }
}

// A case for the artifact with one mask. Documents are `length` tokens long,
// and begin later in the second batch row.
AttentionCase one_mask(const char* mask, int32_t length) {
  AttentionCase c;
  c.plan.masks = {parse_mask(mask)->expr};
  c.plan.batch = kBatch;
  c.plan.q_len = kQueries;
  c.plan.kv_len = kKeys;
  c.plan.tile = {64, 128};
  c.plan.q_offsets = {{0, 0}};
  c.shape = {4, 2, 16, 16, {}, 0};
  c.seed = static_cast<uint64_t>(length);
  const std::string text = mask;
  if (text.find("documents") != std::string::npos) {
    c.plan.doc_ids.emplace();
    c.plan.q_doc_ids.emplace();
    for (int32_t b = 0; b < kBatch; ++b) {
      for (int32_t i = 0; i < kKeys; ++i) {
        const int32_t id = i < 30 * b ? -1 : (i - 30 * b) / length;
        c.plan.doc_ids->push_back(id);
        if (i < kQueries) c.plan.q_doc_ids->push_back(id);
      }
    }
  }
  if (text.find("prefix") != std::string::npos) c.plan.prefix = {{40, 70}};
  if (text.find("same(") != std::string::npos) add_groups(length, c.plan);
  if (text.find("tree") != std::string::npos) add_tree(length, c.plan);
  if (text.find("blocks") != std::string::npos) add_picks(c.plan);
  return c;
}

SessionOptions options_for(const char* plugin, const std::string& artifact) {
  SessionOptions o;
  o.lane = LaneId::splash;
  o.xla.plugin = plugin;
  o.artifact = artifact_of(artifact);
  return o;
}

AttentionCall call_of(const AttentionCase& c) {
  AttentionCall call;
  call.shape = c.shape;
  call.dtype = c.dtype;
  return call;
}

class SplashLane : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto plugin = testing::real_plugin(GetParam());
    if (testing::is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
  }

  // Runs the case and returns what is wrong, or ""; counts compiles.
  std::string fault(const Session& session, const AttentionCase& c) {
    AttentionArrays arrays(c);
    const auto batch = OwnedBatch::copy(arrays.request, arrays.facts);
    if (!batch) return batch.error().message;
    auto ready = session.prepare(*batch, call_of(c));
    if (!ready) return ready.error().message;
    arrays.clear_outputs();
    const auto ran = ready->forward(arrays.forward(c.lse));
    if (!ran) return ran.error().message;
    compiles_ += ready->counters().compiles;
    hits_ += ready->counters().memory_hits;
    const Plan& plan = batch->plan();
    EXPECT_EQ(
        ready->counters().tiles_run,
        static_cast<int64_t>(plan.forward.entries.size()) * 4 / plan.heads);
    if (const auto spilled = arrays.spilled()) return *spilled;
    return testing::forward_fault(testing::wanted(arrays, true),
                                  arrays.forward(c.lse))
        .value_or("");
  }

  int64_t compiles_ = 0, hits_ = 0;
};
TESSERA_FOR_CPU_PLUGINS(SplashLane);

// All that no legal pair reads is NaN. Each call has two batch rows.
TEST_P(SplashLane, OneProgramServesEveryMaskOfItsSizes) {
  const auto session = Session::open(options_for(GetParam(), "splash"));
  ASSERT_TRUE(session.ok()) << session.error().message;
  int64_t runs = 0;
  for (const auto& [mask, length] :
       {std::pair<const char*, int32_t>{"causal & documents", 130},
        {"causal & documents", 256},
        {"documents & window(40, 9)", 128},
        {"causal & chunk(64)", 3},  // one tile a row, fewer than the ceiling
        {"causal & (window(70, 0) | sink(4))", 2},
        {"causal", 1},
        {"causal | prefix", 4},
        {"causal & chunk(128) | same(a)", 40},
        {"window(20, 0) & same(a) | same(b)", 60},
        {"tree", 100},
        {"tree & !window(3, 0)", 64},
        {"blocks(64)", 7},
        {"causal & blocks(64)", 8},
        {"!full", 5}}) {
    AttentionCase c = one_mask(mask, length);
    c.layout = static_cast<Layout>(runs % 4);
    c.lse = runs % 3 != 2;
    EXPECT_EQ(fault(*session, c), "") << mask << ", " << length;
    ++runs;
  }
  // Queries and keys beyond the valid token counts are not live.
  AttentionCase ragged = one_mask("causal", 6);
  ragged.plan.valid_tokens = {{200, 0}};
  EXPECT_EQ(fault(*session, ragged), "");
  EXPECT_EQ(compiles_, 1);
  EXPECT_EQ(hits_, runs);
}

TEST_P(SplashLane, LayersPlanBindAndCompileOnce) {
  const Trace trace;
  const auto session = Session::open(options_for(GetParam(), "splash"));
  ASSERT_TRUE(session.ok()) << session.error().message;
  const AttentionCase c = one_mask("causal & documents", 130);
  AttentionArrays arrays(c);
  const auto batch = OwnedBatch::copy(arrays.request, arrays.facts);
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  auto ready = session->prepare(*batch, call_of(c));
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  for (const int layers : {31, 1}) {  // the last output is judged
    arrays.clear_outputs();
    const auto ran =
        testing::forward_layers(*ready, arrays.forward(true), layers);
    ASSERT_TRUE(ran.ok()) << ran.error().message;
  }
  EXPECT_EQ(testing::forward_fault(testing::wanted(arrays, true),
                                   arrays.forward(true)),
            std::nullopt);
  std::map<std::string, int> spans = testing::spans_of(trace);
  EXPECT_EQ(spans["plan make_plan"], 1);
  EXPECT_EQ(spans["plan bind"], 1);
  EXPECT_EQ(spans["plan contract"], 1);
  EXPECT_EQ(spans["splash prepare"], 1);
  EXPECT_EQ(spans["bridge prepare"], 1);
  EXPECT_EQ(spans["pjrt compile"], 1);
  EXPECT_EQ(spans["splash forward"], 32);
  EXPECT_EQ(spans["bridge run"], 32 * kBatch);
  // Six arrays once per batch row; q, k and v once per layer and batch row.
  EXPECT_EQ(spans["bridge hold"], kBatch);
  EXPECT_EQ(spans["pjrt to_device"], 6 * kBatch + 32 * 3 * kBatch);
}

TEST_P(SplashLane, LayersLeaveNothingBehindAndStop) {
  const auto session = Session::open(options_for(GetParam(), "splash"));
  ASSERT_TRUE(session.ok()) << session.error().message;
  const AttentionCase c = one_mask("causal & documents", 130);
  AttentionArrays arrays(c);
  const auto batch = OwnedBatch::copy(arrays.request, arrays.facts);
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  auto ready = session->prepare(*batch, call_of(c));
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  const ForwardTensors forward = arrays.forward(true);
  const auto run = [&](int layers) {
    EXPECT_TRUE(testing::forward_layers(*ready, forward, layers).ok());
  };
  run(64);  // the plugin now holds most of the memory it keeps
  // Not even the smallest array of each layer stays.
  EXPECT_LT(testing::least_left_by([&] { run(32); }),
            static_cast<int64_t>(32 * forward.lse.size_bytes()));
  StopFlag stop;
  stop.stop();
  const auto none = ready->forward(forward, &stop);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().kind, ErrorKind::stopped);
}

TEST_P(SplashLane, ItsProgramIsNoText) {
  const auto session = Session::open(options_for(GetParam(), "splash"));
  ASSERT_TRUE(session.ok()) << session.error().message;
  const AttentionCase c = one_mask("causal", 1);
  const AttentionArrays arrays(c);
  const auto batch = OwnedBatch::copy(arrays.request, arrays.facts);
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  const auto ready = session->prepare(*batch, call_of(c));
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  const auto text = ready->program_text();
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().kind, ErrorKind::unavailable);
  EXPECT_EQ(text.error().message,
            "[splash] a program must be text to be shown, found MLIR bytecode "
            "that JAX exported");
}

TEST_P(SplashLane, WarmCompilesWhatEveryBatchNeeds) {
  const auto session = Session::open(options_for(GetParam(), "splash"));
  ASSERT_TRUE(session.ok()) << session.error().message;
  const AttentionCase c = one_mask("causal", 1);
  const auto warmed = session->warm(*c.plan.request(), {}, call_of(c));
  ASSERT_TRUE(warmed.ok()) << warmed.error().message;
  EXPECT_EQ(warmed->compiles, 1);
  EXPECT_EQ(fault(*session, c), "");
  EXPECT_EQ(compiles_, 0);
}

TEST_P(SplashLane, AMaskForEachHead) {
  const auto session = Session::open(options_for(GetParam(), "splash_heads"));
  ASSERT_TRUE(session.ok()) << session.error().message;
  for (const char* second : {"window(9, 50)", "full", "!full", "causal"}) {
    AttentionCase c = one_mask("causal & documents", 90);
    c.plan.masks.push_back(parse_mask(second)->expr);
    c.shape = {4, 2, 16, 24, 0.3, 20};
    EXPECT_EQ(fault(*session, c), "") << second;
  }
  EXPECT_EQ(compiles_, 1);
}

TEST_P(SplashLane, MoreThanItsCeilingsIsRefused) {
  const auto session = Session::open(options_for(GetParam(), "splash"));
  ASSERT_TRUE(session.ok()) << session.error().message;
  EXPECT_EQ(fault(*session, one_mask("full", 1)),
            "[splash] a row of tiles must fit the 2 of the artifact, found 3");
  // No two of its eight tiles are the same.
  AttentionCase woven = one_mask("documents & chunk(256)", 37);
  for (auto* ids : {&woven.plan.doc_ids, &woven.plan.q_doc_ids}) {
    int32_t i = 0;
    for (int32_t& id : **ids) id = i++ % 7 % 3;
  }
  EXPECT_EQ(fault(*session, woven),
            "[splash] distinct partial tiles must fit the 6 of the artifact, "
            "found 8");
}

TEST_P(SplashLane, TheReceiptNamesTheLane) {
  const AttentionCase c = one_mask("causal & documents", 130);
  AttentionArrays arrays(c);
  const auto batch = OwnedBatch::copy(arrays.request, arrays.facts);
  ASSERT_TRUE(batch.ok());
  RunCall call{*batch, c.shape, arrays.forward(true)};
  const auto ran = run_attention(call, options_for(GetParam(), "splash"));
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  EXPECT_EQ(ran->executed, LaneId::splash);
  const json r = json::parse(ran->receipt);
  EXPECT_EQ(r["lane"]["executed"], "splash");
  EXPECT_EQ(r["lane"]["family"], "tpu/splash");
  EXPECT_EQ(r["compiles"], 1);
  EXPECT_EQ(r["artifact"]["digest"].get<std::string>().size(), 32U);
  EXPECT_EQ(r["tiles"]["run"], ran->counters.tiles_run);
  EXPECT_GT(r["tiles"]["skipped"], 0);
  const auto checked = check_receipt(ran->receipt);
  EXPECT_TRUE(checked.ok()) << checked.error().message;
  const auto wrong =
      verify_run(ran->receipt, call, options_for(GetParam(), "splash"));
  ASSERT_TRUE(wrong.ok()) << wrong.error().message;
  EXPECT_TRUE(wrong->empty()) << wrong->front();
}

TEST_P(SplashLane, OtherCallsAreRefused) {
  const auto refused = [&](const std::function<void(AttentionCase&)>& change,
                           const char* artifact = "splash") {
    AttentionCase c = one_mask("causal", 1);
    change(c);
    const auto session = Session::open(options_for(GetParam(), artifact));
    return session ? fault(*session, c) : session.error().message;
  };
  const std::string forced =
      "[dispatch] the splash lane must be able to run this, found: ";
  EXPECT_EQ(refused([](AttentionCase& c) {
              c.plan.tile = {128, 128};
            }),
            forced + "its artifact has tile 64x128, not 128x128");
  EXPECT_EQ(refused([](AttentionCase& c) { c.shape.softcap = 3; }),
            forced + "its artifact has softcap 0, not 3");
  EXPECT_EQ(refused([](AttentionCase& c) { c.dtype = Dtype::bf16; }),
            forced + "its artifact has dtype f32, not bf16");
  EXPECT_EQ(refused([](AttentionCase& c) { c.plan.kv_len = 300; }),
            forced + "its artifact has kv_len 384, not 300");
  EXPECT_EQ(refused([](AttentionCase& c) {
              c.plan.masks.push_back(causal() & chunk(8));
            }),
            forced + "its artifact has one mask for all heads, not 2");
  // Each option that the kernel was exported without is refused by name.
  const AttentionCase c = one_mask("causal", 1);
  const AttentionArrays arrays(c);
  const auto batch = OwnedBatch::copy(arrays.request, arrays.facts);
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  const auto session = Session::open(options_for(GetParam(), "splash"));
  ASSERT_TRUE(session.ok()) << session.error().message;
  for (const auto& [flag, name] :
       {std::pair(&AttentionCall::backward, "backward"),
        {&AttentionCall::sink_logits, "sink logits"},
        {&AttentionCall::sink_telemetry, "sink telemetry"}}) {
    AttentionCall call = call_of(c);
    call.*flag = true;
    const auto ready = session->prepare(*batch, call);
    ASSERT_FALSE(ready.ok()) << name;
    EXPECT_EQ(ready.error().message, forced + "it has no " + std::string(name));
  }
  EXPECT_EQ(refused([](AttentionCase&) {}, "small"),
            "[bridge] to run as splash, an artifact must declare it, found "
            "'attention'");
}

// Sizes are checked against the program before arrays are allocated.
TEST(SplashLaneOf, ShapesAreThoseOfTheProgram) {
  const auto plugin = testing::real_plugin("xla_cpu_pjrt");
  if (testing::is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
  SessionOptions options = options_for("xla_cpu_pjrt", "splash");
  for (BridgeArray& a : options.artifact->spec.inputs) {
    if (a.name == "mask_blocks") a.shape[0] = int64_t{1} << 40;
  }
  const auto session = Session::open(options);
  ASSERT_TRUE(session.ok()) << session.error().message;
  const AttentionCase c = one_mask("causal", 1);
  const AttentionArrays arrays(c);
  const auto batch = OwnedBatch::copy(arrays.request, arrays.facts);
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  const auto ready = session->prepare(*batch, call_of(c));
  ASSERT_FALSE(ready.ok());
  EXPECT_EQ(ready.error().message,
            "[bridge] the program's input must be BOOL [1099511627776, 64, "
            "128] as its shapes say, found BOOL [6, 64, 128] for "
            "'mask_blocks'");
}

// On a TPU, blocks below the granule need a lowering reason, as tiles of our
// lanes do. This is checked before any compile, and the receipt has the reason.
TEST(SplashLaneOf, ABlockBelowTheGranuleOfATpuHasAReason) {
  TESSERA_NEEDS_PLUGINS();
  const auto real = testing::real_plugin("xla_cpu_pjrt");
  if (testing::is_absent(real)) GTEST_SKIP() << real.error().message;
  ASSERT_TRUE(real.ok()) << real.error().message;
  setenv("TESSERA_TEST_WRAPPED_PLUGIN", (*real)->path().c_str(), 1);
  const std::string tpu = testing::fake_plugin("tpu");
  SessionOptions options = options_for(tpu.c_str(), "splash");
  options.artifact->spec.platforms = {"tpu"};  // the fake one runs on a CPU

  const AttentionCase plain = one_mask("causal", 1);
  const AttentionCase c = one_mask("causal & documents", 130);
  AttentionArrays arrays(c);
  const auto batch = OwnedBatch::copy(arrays.request, arrays.facts);
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  const std::string none =
      "[splash] a tile below the granule of v6e, 256x256, must come with a "
      "lowering reason, found none for 64x128, which pays 8 times its work";
  const auto silent = Session::open(options);
  ASSERT_TRUE(silent.ok()) << silent.error().message;
  const auto refused = silent->prepare(*batch, call_of(c));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, none);
  const auto cold = silent->warm(*plain.plan.request(), {}, call_of(plain));
  ASSERT_FALSE(cold.ok());
  EXPECT_EQ(cold.error().message, none);

  options.xla.lowering_reason = "a test of few tokens";
  const RunCall call{*batch, c.shape, arrays.forward(true)};
  const auto ran = run_attention(call, options);
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  const json r = json::parse(ran->receipt);
  EXPECT_EQ(r["lowering"],
            json({{"chip", "v6e"},
                  {"granule", 256},
                  {"tile", {64, 128}},
                  {"reason", "a test of few tokens"},
                  {"factor", 8.0},
                  {"paid_pairs", 8 * r["pairs"]["run"].get<int64_t>()}}));
  EXPECT_GT(r["pairs"]["run"], 0);
  const auto checked = check_receipt(ran->receipt);
  EXPECT_TRUE(checked.ok()) << checked.error().message;
  // verify_run() uses the reason in the receipt.
  options.xla.lowering_reason.reset();
  const auto wrong = verify_run(ran->receipt, call, options);
  ASSERT_TRUE(wrong.ok()) << wrong.error().message;
  EXPECT_TRUE(wrong->empty()) << wrong->front();

  // A CPU has no matrix unit, so a reason is refused.
  SessionOptions on_cpu = options_for("xla_cpu_pjrt", "splash");
  on_cpu.xla.lowering_reason = "a test of few tokens";
  const auto session = Session::open(on_cpu);
  ASSERT_TRUE(session.ok()) << session.error().message;
  const auto idle = session->prepare(*batch, call_of(c));
  ASSERT_FALSE(idle.ok());
  EXPECT_TRUE(idle.error().message.starts_with(
      "[run] a lowering reason goes with tiles of scores on a TPU, found one "
      "for the splash lane"))
      << idle.error().message;
}

TEST(SplashLaneOf, NoArtifactIsTold) {
  SessionOptions options;
  options.lane = LaneId::splash;
  const auto session = Session::open(options);
  ASSERT_FALSE(session.ok());
  EXPECT_EQ(session.error().message,
            "[splash] the lane must be given Splash's kernel as JAX exported "
            "it, found none");
}

}  // namespace
}  // namespace tessera::splash
