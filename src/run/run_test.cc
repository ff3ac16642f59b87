// run/run_test.cc: tests one call of the library: its outputs, its receipt, the
// verification, and counts against the tiles that a run really touched.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "base/files.h"
#include "lanes/reference/judge.h"
#include "receipt/read.h"
#include "tessera/session.h"
#include "tests/cpu_plugin.h"
#include "tests/heap.h"
#include "tests/layers.h"
#include "tests/plugins.h"
#include "tests/spans.h"
#include "tests/variable.h"

namespace tessera::run {
namespace {

using nlohmann::json;

constexpr int64_t kTokens = 48;
constexpr int64_t kHeads = 2;
constexpr int64_t kDim = 16;

// A small packed batch with its arrays.
struct Small {
  Request request;
  std::vector<int32_t> ids;
  AttentionShape shape{kHeads, kHeads, kDim, kDim, {}, 0};
  std::vector<float> q, k, v, out, lse, dout, dq, dk, dv;

  explicit Small(const char* mask = "causal & documents") {
    request.masks = {*parse_mask(mask)};
    request.q_len = request.kv_len = kTokens;
    request.tile = {8, 16};
    for (int64_t i = 0; i < kTokens; ++i) {
      ids.push_back(i < 20 ? 0 : i < 30 ? 1 : 2);
    }
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    for (std::vector<float>* a : {&q, &k, &v, &out, &dout, &dq, &dk, &dv}) {
      a->resize(kTokens * kHeads * kDim);
      for (float& x : *a) x = normal(random);
    }
    lse.resize(kTokens * kHeads);
  }

  static MutableTensorView view(std::vector<float>& a) {
    return MutableTensorView::bhsd(a.data(), Dtype::f32, 1, kHeads, kTokens,
                                   kDim);
  }
  static TensorView view(const std::vector<float>& a) {
    return TensorView::bhsd(a.data(), Dtype::f32, 1, kHeads, kTokens, kDim);
  }
  Batch batch() const {
    Facts facts;
    facts.doc_ids = ids;
    return *OwnedBatch::copy(request, facts);
  }
  ForwardTensors forward() {
    ForwardTensors t;
    t.q = view(std::as_const(q));
    t.k = view(std::as_const(k));
    t.v = view(std::as_const(v));
    t.out = view(out);
    t.lse = lse;
    return t;
  }
  Gradients gradients() {
    Gradients g;
    g.dout = view(std::as_const(dout));
    g.dq = view(dq);
    g.dk = view(dk);
    g.dv = view(dv);
    return g;
  }
  RunCall call() { return {batch(), shape, forward()}; }
};

// Every output is within its bound of fp64. XLA flushes subnormal numbers.
void expect_judged(const RunCall& call, bool flushes = false) {
  reference::JudgeOptions options;
  options.flushes = flushes;
  const auto verdict =
      reference::judge_forward(call.batch, call.shape, call.forward, options);
  ASSERT_TRUE(verdict.ok()) << verdict.error().message;
  EXPECT_TRUE(verdict->passed()) << verdict->worst;
}

TEST(RunAttention, GivesOutputsAndAReceipt) {
  Small batch, oracle;
  const auto ran = run_attention(batch.call());
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  EXPECT_EQ(ran->executed, LaneId::cpu);
  EXPECT_EQ(ran->choice.request_class, RequestClass::sparse_blocks);
  EXPECT_FALSE(ran->fallback.has_value());
  EXPECT_TRUE(check_receipt(ran->receipt).ok())
      << check_receipt(ran->receipt).error().message;
  const json r = json::parse(ran->receipt);
  EXPECT_EQ(r["lane"]["requested"], "auto");
  EXPECT_EQ(r["lane"]["executed"], "cpu");
  EXPECT_EQ(r["tiles"]["run"], ran->counters.tiles_run);
  EXPECT_EQ(r["shape"]["layout"], "bhsd");
  EXPECT_TRUE(r["inputs"]["digests"].empty());

  SessionOptions options;
  options.lane = LaneId::reference;
  ASSERT_TRUE(run_attention(oracle.call(), options).ok());
  expect_judged(batch.call());
  expect_judged(oracle.call());
  EXPECT_EQ(
      json::parse(
          run_attention(oracle.call(), options)->receipt)["lane"]["source"],
      "caller");
}

TEST(RunAttention, AReceiptHasAllThatARequestSays) {
  Small batch;
  batch.request.logical_block = {16, 24};
  int64_t ceiling = 1000;
  for (int64_t* const most :
       {&batch.request.ceilings.max_steps, &batch.request.ceilings.max_width,
        &batch.request.ceilings.max_union}) {
    *most = ceiling++;
  }
  const auto ran = run_attention(batch.call());
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  const json r = json::parse(ran->receipt)["request"];
  for (const receipt::RequestField& field : receipt::request_fields()) {
    SCOPED_TRACE(field.name);
    const std::string name(field.name);
    if (field.number.in) {
      EXPECT_EQ(r.value(name, 0), field.number.in(batch.request));
    } else if (name == "mask") {
      EXPECT_EQ(r[name], json::array({"causal & documents"}));
    } else if (name == "tile") {
      EXPECT_EQ(r[name], json::array({8, 16}));
    } else if (name == "logical_block") {
      EXPECT_EQ(r.value(name, ""), "16x24");
    } else {  // where they are from, of which a library's call knows nothing
      EXPECT_TRUE(std::string(field.group) == receipt::kFactsGroup ||
                  name == "target");
      EXPECT_FALSE(r.contains(name));
    }
  }
}

// A stop ends any pass, also of the second run that verifies a receipt. A
// callback of the lane sets the flag.
TEST(RunAttention, AStopFlagEndsEveryPass) {
  Small batch;
  StopFlag stop;
  int told = 0, stop_at = 0;
  SessionOptions options;
  options.lane = LaneId::cpu;
  options.cpu.threads = 1;
  options.cpu.progress = [&](double) {
    if (++told == stop_at) stop.stop();
  };
  RunCall call = batch.call();
  call.gradients = batch.gradients();
  call.first_keys = 4;
  call.stop = &stop;
  const auto whole = run_attention(call, options);
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  const int all = told;
  ASSERT_GT(all, 3);
  for (stop_at = 1; stop_at < all; ++stop_at) {
    told = 0;
    stop.reset();
    const auto ran = run_attention(call, options);
    ASSERT_FALSE(ran.ok()) << stop_at;
    EXPECT_EQ(ran.error().kind, ErrorKind::stopped) << ran.error().message;
    EXPECT_EQ(told, stop_at);  // no pass went on
    told = 0;
    stop.reset();
    const auto again = verify_run(whole->receipt, call, options);
    ASSERT_FALSE(again.ok()) << stop_at;
    EXPECT_EQ(again.error().kind, ErrorKind::stopped) << again.error().message;
    EXPECT_EQ(told, stop_at);
  }
  stop_at = 0;
  stop.reset();
  const auto again = verify_run(whole->receipt, call, options);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_TRUE(again->empty());
}

TEST(RunAttention, AllowedLanesStepInWhereTheRulesKnowNone) {
  Small batch;
  batch.shape.scale = 1e31;  // its scores fit fp64 alone
  const auto strict = run_attention(batch.call());
  ASSERT_FALSE(strict.ok());
  EXPECT_EQ(strict.error().kind, ErrorKind::unavailable);
  SessionOptions options;
  options.fallback = {LaneId::reference};
  const auto ran = run_attention(batch.call(), options);
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  EXPECT_EQ(ran->executed, LaneId::reference);
  const json r = json::parse(ran->receipt);
  EXPECT_EQ(r["lane"]["requested"], "auto");
  EXPECT_EQ(r["choice"]["reason"], "no lane of the rules can run it");
  EXPECT_TRUE(
      r["fallback"].get<std::string>().starts_with("cpu did not start: "))
      << r["fallback"];
}

// A kernel that was judged wrong on this machine is not used as a fallback. The
// receipt has the row, so the choice can be verified.
TEST(RunAttention, AWrongKernelIsPassedOverByFallbacksToo) {
  Small batch;
  SessionOptions options;
  options.machine = this_machine(false);
  GateRow row;
  row.kernel = "cpu/forward";
  row.machine = options.machine->key();
  row.request_class = RequestClass::plain_causal;
  row.mask = "causal";
  row.q_len = row.kv_len = kTokens;
  row.shape = batch.shape;
  row.density = 0.5;
  row.judgement = GateJudgement::wrong;
  row.error = 2;
  options.gate.rows = {row};
  set_verdicts(options.gate);
  ASSERT_EQ(options.gate.rows[0].verdict, GateVerdict::wrong);
  ASSERT_TRUE(parse_gate(gate_json(options.gate)).ok());
  const auto strict = run_attention(batch.call(), options);
  ASSERT_FALSE(strict.ok());
  const std::string why = "the gate on this machine: cpu/forward is wrong";
  EXPECT_NE(strict.error().message.find("cpu: " + why), std::string::npos)
      << strict.error().message;

  options.fallback = {LaneId::cpu, LaneId::reference};
  const auto ran = run_attention(batch.call(), options);
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  EXPECT_EQ(ran->executed, LaneId::reference);
  const json r = json::parse(ran->receipt);
  EXPECT_EQ(r["lane"]["chosen"], "cpu");
  EXPECT_EQ(r["choice"]["gate"][0]["verdict"], "wrong");
  EXPECT_EQ(r["choice"]["rejected"]["reference"],
            "it runs only where it is asked for by name");
  EXPECT_EQ(r["fallback"],
            "cpu did not start: [dispatch] the cpu lane must not be kept out "
            "to run, found: " +
                why);
  const auto checked = check_receipt(ran->receipt);
  EXPECT_TRUE(checked.ok()) << checked.error().message;
  const auto again = verify_run(ran->receipt, batch.call(), options);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_TRUE(again->empty()) << again->front();
}

TEST(RunAttention, BackwardAndInputDigestsOnRequest) {
  Small batch;
  RunCall call = batch.call();
  call.gradients = batch.gradients();
  SessionOptions options;
  options.input_digests = true;
  const auto ran = run_attention(call, options);
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  const json r = json::parse(ran->receipt);
  EXPECT_EQ(r["direction"], "forward+backward");
  EXPECT_EQ(r["inputs"]["digests"].size(), 4u);
  const auto again = verify_run(ran->receipt, call);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_TRUE(again->empty()) << again->front();
  batch.q[5] += 1;
  EXPECT_FALSE(verify_run(ran->receipt, call)->empty());
}

TEST(RunAttention, SinkTelemetryIsInItsReceipt) {
  Small batch;
  RunCall call = batch.call();
  call.first_keys = 3;
  SessionOptions options;
  options.lane = LaneId::cpu;
  const auto ran = run_attention(call, options);
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  const json told = json::parse(ran->receipt)["sink_telemetry"];
  EXPECT_EQ(told["first_keys"], 3);
  ASSERT_TRUE(ran->sinks);
  EXPECT_EQ(told["documents"].size(), ran->sinks->documents.size());
  EXPECT_EQ(told["documents"][0]["mass"][0], ran->sinks->documents[0].mass[0]);
  const auto again = verify_run(ran->receipt, call);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_TRUE(again->empty()) << again->front();
  call.first_keys = 4;
  EXPECT_FALSE(verify_run(ran->receipt, call)->empty());
  call.first_keys = -1;
  EXPECT_EQ(run_attention(call, options).error().message,
            "[run] first_keys must be 1 to 1073741824, found -1");
}

// A receipt whose digest fits again, as a forger would leave it.
std::string forged(const std::string& receipt, const char* pointer,
                   const json& value) {
  json r = json::parse(receipt);
  r[json::json_pointer(pointer)] = value;
  r["receipt_digest"] = receipt::receipt_digest(r);
  return r.dump();
}

TEST(RunAttention, ForgedReceiptsAreCaught) {
  Small batch;
  const RunCall call = batch.call();
  const std::string good = run_attention(call)->receipt;
  ASSERT_TRUE(verify_run(good, call)->empty());
  const std::string zeros(32, '0');
  const std::pair<const char*, json> forgeries[] = {
      {"/contract", zeros},
      {"/plan/digest", zeros},
      {"/facts_digest", zeros},
      {"/output/digest", zeros},
      {"/tiles/run", 1},
      {"/tiles/skipped", 1},
      {"/pairs/run", 1},
      {"/pairs/legal", 1},
      {"/shape/heads", 4},
      {"/request/q_len", 49},
      {"/lane/family", "tpu/jax"},
      {"/lane/executed", "reference"},
      {"/compiles", 1},
      {"/fallback", "it was slow"},
      {"/ms/total", 0.5},
      {"/choice/reason", "it felt right"},
      {"/choice/class", "plain causal"},
      {"/choice/rejected/xla", "bad"},
      {"/device", "TPU v6e"},
      {"/inputs/seed", 7},
      {"/plan_file", "batch.plan"},
      {"/parameters", {{"fetch_ahead", 4}}},
      {"/check",
       {{"kind", "full"},
        {"rows", 96},
        {"max_error", 0.0},
        {"max_bound_ratio", 0.0},
        {"passed", true},
        {"worst", ""}}}};
  for (const auto& [field, value] : forgeries) {
    const auto found = verify_run(forged(good, field, value), call);
    ASSERT_TRUE(found.ok()) << field << found.error().message;
    EXPECT_FALSE(found->empty()) << field;
  }
  // A false claim that a lane stepped in.
  json stepped = json::parse(good);
  stepped["lane"]["chosen"] = "xla";
  stepped["lane"]["fallback_allowed"] = {"cpu"};
  stepped["fallback"] = "xla did not start";
  stepped["choice"]["rejected"].erase("xla");
  stepped["choice"]["rejected"]["cpu"] = "second";
  EXPECT_FALSE(
      verify_run(forged(stepped.dump(), "/fallback", "it failed"), call)
          .value()
          .empty());
  // A receipt that contradicts itself is refused before a second run, which
  // would fail here.
  json odd = json::parse(good);
  odd["lane"]["executed"] = nullptr;
  const auto contradicted =
      verify_run(forged(odd.dump(), "/threads", 5000), call);
  ASSERT_TRUE(contradicted.ok()) << contradicted.error().message;
  EXPECT_FALSE(contradicted->empty());
  // Only the digest is wrong.
  json r = json::parse(good);
  r["tiles"]["run"] = 1;
  const auto found = verify_run(r.dump(), call);
  ASSERT_EQ(found->size(), 1u);
  EXPECT_TRUE(found->front().starts_with(
      "[receipt] receipt_digest must be that of the other fields, "));
}

TEST(RunAttention, FallsBackOnlyWhereThatIsAllowed) {
  Small batch;
  SessionOptions options;
  options.lane = LaneId::xla;
  options.xla.plugin = "/nowhere/none.so";
  const auto strict = run_attention(batch.call(), options);
  ASSERT_FALSE(strict.ok());
  EXPECT_TRUE(strict.error().message.starts_with("[pjrt] "))
      << strict.error().message;
  options.fallback = {LaneId::cpu};
  const auto lenient = run_attention(batch.call(), options);
  ASSERT_TRUE(lenient.ok()) << lenient.error().message;
  EXPECT_EQ(lenient->choice.lane, LaneId::xla);
  EXPECT_EQ(lenient->executed, LaneId::cpu);
  const json r = json::parse(lenient->receipt);
  EXPECT_EQ(r["lane"]["requested"], "xla");
  EXPECT_EQ(r["lane"]["executed"], "cpu");
  EXPECT_EQ(r["fallback"], *lenient->fallback);
  EXPECT_TRUE(check_receipt(lenient->receipt).ok());
  EXPECT_TRUE(verify_run(lenient->receipt, batch.call())->empty());

  options.fallback = {LaneId::jax_bridge};
  EXPECT_FALSE(run_attention(batch.call(), options).ok());
}

TEST(RunAttention, ArraysAreCheckedWhateverTheLane) {
  Small batch;
  const auto refused = [&](auto change) {
    RunCall call = batch.call();
    change(call);
    SessionOptions options;
    options.lane = LaneId::reference;
    const auto r = run_attention(call, options);
    return r ? std::string() : r.error().message;
  };
  EXPECT_EQ(refused([](RunCall& c) { c.forward.k.tokens = 47; }),
            "[run] k must have shape [1, 2, 48, 16], found [1, 2, 47, 16]");
  EXPECT_EQ(refused([](RunCall& c) { c.forward.out.data = nullptr; }),
            "[run] out must have shape [1, 2, 48, 16], found [1, 2, 48, 16] "
            "without data");
  EXPECT_EQ(refused([](RunCall& c) { c.forward.v.dtype = Dtype::f16; }),
            "[run] arrays must be of one type, F32, BF16 or F16, found F16 for "
            "v");
  EXPECT_EQ(refused([](RunCall& c) { c.forward.lse = c.forward.lse.first(3); }),
            "[run] lse must have 96 values, found 3");
  EXPECT_EQ(refused([](RunCall& c) { c.shape.kv_heads = 3; }),
            "[run] kv_heads must divide heads, found 3 kv_heads for 2 heads");
  EXPECT_EQ(refused([](RunCall& c) { c.forward.q.token_stride = -1; }),
            "[run] strides must be 0 or more, found one below for q");
  // The gradients' arrays. That they belong to this run is checked by Saved
  // (session_test.cc).
  const auto gradients_refused = [&](auto change) {
    return refused([&](RunCall& c) {
      c.gradients = batch.gradients();
      change(*c.gradients);
    });
  };
  EXPECT_EQ(gradients_refused([](Gradients&) {}), "");
  EXPECT_EQ(gradients_refused([](Gradients& g) { g.dout.tokens = 47; }),
            "[run] dout must have shape [1, 2, 48, 16], found [1, 2, 47, 16]");
  EXPECT_EQ(gradients_refused([](Gradients& g) { g.dv.data = nullptr; }),
            "[run] dv must have shape [1, 2, 48, 16], found [1, 2, 48, 16] "
            "without data");
  EXPECT_EQ(gradients_refused([](Gradients& g) { g.dk.dtype = Dtype::bf16; }),
            "[run] arrays must be of one type, F32, BF16 or F16, found BF16 "
            "for dk");
  EXPECT_EQ(gradients_refused(
                [&](Gradients& g) { g.dlse = std::span(batch.lse).first(3); }),
            "[run] dlse must have 96 values, found 3");
  // Without gradients the log-sum-exp is optional.
  EXPECT_EQ(refused([](RunCall& c) { c.forward.lse = {}; }), "");
  EXPECT_EQ(refused([&](RunCall& c) {
              c.forward.lse = {};
              c.gradients = batch.gradients();
            }),
            "[run] lse must have 96 values, found 0");
}

TEST(RunAttention, TheLayoutIsThatOfAllArrays) {
  const auto layout = [](bool q_by_token, bool k_by_token) {
    Small batch;
    RunCall call = batch.call();
    const auto by_token = [](const std::vector<float>& a) {
      return TensorView::bshd(a.data(), Dtype::f32, 1, kHeads, kTokens, kDim);
    };
    if (q_by_token) {
      call.forward.q = by_token(batch.q);
      call.forward.v = by_token(batch.v);
      call.forward.out = MutableTensorView::bshd(batch.out.data(), Dtype::f32,
                                                 1, kHeads, kTokens, kDim);
    }
    if (k_by_token) call.forward.k = by_token(batch.k);
    return json::parse(run_attention(call)->receipt)["shape"]["layout"];
  };
  EXPECT_EQ(layout(false, false), "bhsd");
  EXPECT_EQ(layout(true, true), "bshd");
  EXPECT_EQ(layout(false, true), "strided");
}

// A receipt is untrusted input.
TEST(RunAttention, NoPluginIsLoadedBecauseAReceiptSaysSo) {
  if (!this_machine(false).loads_plugins) GTEST_SKIP() << "no plugins";
  Small batch;
  const std::string stranger = tessera::testing::fake_plugin("odd");
  json r = json::parse(run_attention(batch.call())->receipt);
  r["lane"]["requested"] = r["lane"]["chosen"] = r["lane"]["executed"] = "xla";
  r["lane"]["family"] = "xla";
  r["choice"]["rejected"].erase("xla");
  r["choice"]["rejected"]["cpu"] = "xla was asked for";
  r["isa"] = r["threads"] = nullptr;
  r["method"] = "worklist";
  r["kernels"]["forward"] = r["contract"];
  r["compiles"] = 1;
  r["plugin"] = {{"file", stranger},  {"api", "0.1"},
                 {"platform", "cpu"}, {"platform_version", ""},
                 {"device", "CPU"},   {"number", 0}};
  const auto refused =
      verify_run(forged(r.dump(), "/lane/source", "caller"), batch.call());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::unavailable);
  EXPECT_EQ(refused.error().message,
            "[receipt] a receipt's plugin must be an installed one, or be "
            "named to be loaded, found '" +
                stranger + "'");
  EXPECT_EQ(dlopen(stranger.c_str(), RTLD_NOW | RTLD_NOLOAD), nullptr);
}

// Counts the tiles that a run touched from its outputs: a NaN in the values of
// one column of tiles reaches only the rows whose tile of that column ran.
int64_t touched_tiles(const SessionOptions& options, const char* mask) {
  const Tile tile = Small(mask).request.tile;
  int64_t touched = 0;
  for (int64_t column = 0; column * tile.kv < kTokens; ++column) {
    Small batch(mask);
    for (int64_t h = 0; h < kHeads; ++h) {
      for (int64_t key = column * tile.kv;
           key < std::min(kTokens, (column + 1) * tile.kv); ++key) {
        batch.v[static_cast<size_t>((h * kTokens + key) * kDim)] = NAN;
      }
    }
    EXPECT_TRUE(run_attention(batch.call(), options).ok());
    for (int64_t h = 0; h < kHeads; ++h) {
      std::set<int64_t> rows;
      for (int64_t query = 0; query < kTokens; ++query) {
        const auto at = static_cast<size_t>((h * kTokens + query) * kDim);
        if (std::isnan(batch.out[at])) rows.insert(query / tile.q);
      }
      touched += static_cast<int64_t>(rows.size());
    }
  }
  return touched;
}

TEST(RunAttention, CountsAreThoseOfWhatRan) {
  for (const char* mask : {"causal & documents", "causal", "window(9, 0)",
                           "causal & chunk(16)", "documents"}) {
    Small batch(mask);
    const auto ran = run_attention(batch.call());
    ASSERT_TRUE(ran.ok()) << ran.error().message;
    EXPECT_EQ(ran->counters.tiles_run, touched_tiles({}, mask)) << mask;
    EXPECT_EQ(ran->counters.tiles_run + ran->counters.tiles_skipped,
              kHeads * 6 * 3)
        << mask;
    EXPECT_EQ(json::parse(ran->receipt)["tiles"]["run"],
              ran->counters.tiles_run);
  }
}

// The receipt of one forward pass of the call in an open session.
Result<std::string> run_in(const Session& session, const RunCall& call) {
  auto ready = session.prepare(call.batch, call_of(call));
  if (!ready) return ready.error();
  auto saved = ready->forward(call.forward);
  if (!saved) return saved.error();
  return ready->receipt(*saved);
}

TEST(RunAttentionXla, ASessionKeepsItsProgramsAndCountsTruly) {
  const auto plugin = tessera::testing::real_plugin("xla_cpu_pjrt");
  if (tessera::testing::is_absent(plugin)) {
    GTEST_SKIP() << plugin.error().message;
  }
  SessionOptions options;
  options.lane = LaneId::xla;
  const auto session = Session::open(options);
  ASSERT_TRUE(session.ok()) << session.error().message;
  Small batch;
  const auto first = run_in(*session, batch.call());
  ASSERT_TRUE(first.ok()) << first.error().message;
  const auto second = run_in(*session, batch.call());
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(json::parse(*first)["compiles"], 1);
  EXPECT_EQ(json::parse(*second)["compiles"], 0);
  EXPECT_EQ(json::parse(*second)["cache_hits"]["memory"], 1);
  Small native;
  EXPECT_EQ(json::parse(*first)["tiles"]["run"],
            run_attention(native.call())->counters.tiles_run);
  const auto again = verify_run(*second, batch.call());
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_TRUE(again->empty()) << again->front();
  for (const auto& [field, value] :
       {std::pair<const char*, json>{"/kernels/forward", std::string(32, '1')},
        {"/plugin/platform", "tpu"},
        {"/plugin/api", "0.1"},
        {"/method", "dense"},
        {"/tiles/run", 0}}) {
    EXPECT_FALSE(
        verify_run(forged(*second, field, value), batch.call())->empty())
        << field;
  }
}

// The call that tests/golden/bridge/small.json declares, with its arrays.
struct BridgeBatch {
  BridgeArtifact artifact;
  Request request;
  std::vector<int32_t> ids;
  Facts facts;
  AttentionShape shape{2, 1, 8, 8, {}, 2.0};
  std::vector<float> q, k, v, out, lse;
  ForwardTensors tensors;

  BridgeBatch() {
    const std::string path = "tests/golden/bridge/small";
    artifact.program = *read_file(path + ".mlirbc", 1 << 20);
    artifact.spec = *parse_bridge_spec(*read_file(path + ".json", 1 << 20));
    request.masks = {*parse_mask("causal & window(5, 0) & documents")};
    request.q_len = request.kv_len = 16;
    request.tile = {8, 8};
    for (int32_t i = 0; i < 16; ++i) ids.push_back(i < 6 ? 0 : 1);
    facts.doc_ids = ids;
    std::mt19937 random(4);
    std::normal_distribution<float> normal;
    for (std::vector<float>* a : {&q, &k, &v, &out}) {
      a->resize(a == &k || a == &v ? 16 * 8 : 2 * 16 * 8);
      for (float& x : *a) x = normal(random);
    }
    lse.resize(2 * 16);
    tensors.q = TensorView::bhsd(q.data(), Dtype::f32, 1, 2, 16, 8);
    tensors.k = TensorView::bhsd(k.data(), Dtype::f32, 1, 1, 16, 8);
    tensors.v = TensorView::bhsd(v.data(), Dtype::f32, 1, 1, 16, 8);
    tensors.out = MutableTensorView::bhsd(out.data(), Dtype::f32, 1, 2, 16, 8);
    tensors.lse = lse;
  }
  BridgeBatch(const BridgeBatch&) = delete;
  BridgeBatch& operator=(const BridgeBatch&) = delete;

  RunCall call() const {
    return {*OwnedBatch::copy(request, facts), shape, tensors};
  }
  SessionOptions options() const {
    SessionOptions made;
    made.lane = LaneId::jax_bridge;
    made.artifact = artifact;
    return made;
  }
};

class RunBridge : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto plugin = tessera::testing::real_plugin(GetParam());
    if (tessera::testing::is_absent(plugin)) {
      GTEST_SKIP() << plugin.error().message;
    }
  }
};
TESSERA_FOR_CPU_PLUGINS(RunBridge);

TEST_P(RunBridge, RunsTheCallerSArraysAndSaysWhoseCodeRan) {
  BridgeBatch batch;
  SessionOptions options = batch.options();
  options.xla.plugin = GetParam();
  const auto ran = run_attention(batch.call(), options);
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  EXPECT_EQ(ran->executed, LaneId::jax_bridge);
  EXPECT_EQ(ran->counters.tiles_run, 0);  // JAX's program has no tile count

  expect_judged(batch.call(), true);

  const json r = json::parse(ran->receipt);
  EXPECT_EQ(r["lane"]["executed"], "jax_bridge");
  EXPECT_EQ(r["lane"]["family"], "tpu/jax");
  EXPECT_EQ(r["compiles"], 1);
  EXPECT_EQ(r["artifact"]["digest"].get<std::string>().size(), 32U);
  EXPECT_TRUE(r["artifact"]["file"].is_null());
  EXPECT_TRUE(check_receipt(ran->receipt).ok());
  const auto session = Session::open(options);
  ASSERT_TRUE(session.ok()) << session.error().message;
  ASSERT_TRUE(run_in(*session, batch.call()).ok());
  const auto again = run_in(*session, batch.call());
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(json::parse(*again)["cache_hits"]["memory"], 1);

  const SessionOptions with = batch.options();
  const auto wrong = verify_run(ran->receipt, batch.call(), with);
  ASSERT_TRUE(wrong.ok()) << wrong.error().message;
  EXPECT_TRUE(wrong->empty()) << wrong->front();
  for (const auto& [field, value] :
       {std::pair<const char*, json>{"/artifact/digest", std::string(32, '1')},
        {"/kernels/forward", std::string(32, '1')},
        {"/output/digest", std::string(32, '1')},
        {"/lane/family", "native"},
        {"/artifact", nullptr},
        {"/tiles/run", 4}}) {
    EXPECT_FALSE(
        verify_run(forged(ran->receipt, field, value), batch.call(), with)
            ->empty())
        << field;
  }
}

// The call, prepared on the plugin.
Result<Prepared> prepared(const BridgeBatch& batch, const RunCall& call,
                          const char* plugin) {
  SessionOptions options = batch.options();
  options.xla.plugin = plugin;
  const auto session = Session::open(options);
  if (!session) return session.error();
  return session->prepare(call.batch, call_of(call));
}

// The artifact is bytecode, which is not shown as text.
TEST_P(RunBridge, ItsProgramIsNoText) {
  const BridgeBatch batch;
  const auto ready = prepared(batch, batch.call(), GetParam());
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  for (const bool backward : {false, true}) {
    const auto text = ready->program_text(backward);
    ASSERT_FALSE(text.ok());
    EXPECT_EQ(text.error().kind, ErrorKind::unavailable);
    EXPECT_EQ(text.error().message,
              "[bridge] a program must be text to be shown, found MLIR "
              "bytecode that JAX exported");
  }
}

TEST_P(RunBridge, LayersBindOnce) {
  BridgeBatch batch;
  const Trace trace;
  const RunCall call = batch.call();
  auto ready = prepared(batch, call, GetParam());
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  const auto ran = testing::forward_layers(*ready, call.forward, 32);
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  expect_judged(call, true);
  std::map<std::string, int> spans = testing::spans_of(trace);
  EXPECT_EQ(spans["plan make_plan"], 1);
  EXPECT_EQ(spans["plan bind"], 1);
  EXPECT_EQ(spans["plan contract"], 1);
  EXPECT_EQ(spans["bridge bind"], 1);
  EXPECT_EQ(spans["bridge prepare"], 1);
  EXPECT_EQ(spans["pjrt compile"], 1);
  EXPECT_EQ(spans["bridge run"], 32);
  // Ids are sent once; q, k, v and the platform's index with each layer.
  EXPECT_EQ(spans["bridge hold"], 1);
  EXPECT_EQ(spans["pjrt to_device"], 1 + 32 * 4);

  // Another batch is bound to the arrays of its own facts.
  batch.ids.assign(16, 3);
  const RunCall next = batch.call();
  ASSERT_TRUE(ready->next(next.batch).ok());
  ASSERT_TRUE(ready->forward(next.forward).ok());
  expect_judged(next, true);
  EXPECT_EQ(testing::spans_of(trace)["bridge bind"], 2);
}

TEST_P(RunBridge, LayersLeaveNothingBehind) {
  BridgeBatch batch;
  const RunCall call = batch.call();
  auto ready = prepared(batch, call, GetParam());
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  const auto run = [&](int layers) {
    return testing::forward_layers(*ready, call.forward, layers);
  };
  ASSERT_TRUE(run(256).ok());  // by then the plugin has most of what it keeps
  // Many layers, so that what a plugin keeps at times, some 20 kB, is small.
  const int layers = 512;
  const int64_t left =
      testing::least_left_by([&] { EXPECT_TRUE(run(layers).ok()); });
  // Less is left than the smallest array of each layer.
  EXPECT_LT(left, layers * static_cast<int64_t>(call.forward.lse.size_bytes()));
}

// Every way in which a call is not what the artifact declares.
TEST_P(RunBridge, OtherCallsAreRefused) {
  const auto refused = [](const std::function<void(BridgeBatch&)>& change) {
    BridgeBatch batch;
    change(batch);
    SessionOptions options = batch.options();
    options.xla.plugin = GetParam();
    const auto ran = run_attention(batch.call(), options);
    return ran ? std::string("it ran") : ran.error().message;
  };
  EXPECT_EQ(refused([](BridgeBatch& b) {
              b.request.masks = {*parse_mask("causal & documents")};
            }),
            "[bridge] the mask must be the artifact's causal & documents & "
            "window(5, 0), found causal & documents");
  EXPECT_EQ(refused([](BridgeBatch& b) { b.shape.softcap = 0; }),
            "[bridge] softcap must be the artifact's 2, found 0");
  EXPECT_EQ(refused([](BridgeBatch& b) { b.shape.scale = 0.5; }),
            "[bridge] scale must be the artifact's 0.35355339059327373, found "
            "0.5");
  EXPECT_EQ(refused([](BridgeBatch& b) { b.tensors.lse = {}; }),
            "[bridge] lse must be given, as the artifact has it, found none");
  EXPECT_EQ(refused([](BridgeBatch& b) {
              static const std::vector<float> sinks = {1, 2};
              b.tensors.sink_logits = sinks;
            }),
            "[bridge] sink_logits must be absent, as the artifact has none, "
            "found some");
  EXPECT_EQ(refused([](BridgeBatch& b) {
              static const std::vector<int32_t> counts = {3};
              b.facts.valid_token_counts = counts;
            }),
            "[bridge] valid_token_counts must be absent, as the artifact has "
            "none, found some");
  EXPECT_EQ(refused([](BridgeBatch& b) {
              b.tensors.q =
                  TensorView::bshd(b.q.data(), Dtype::f32, 1, 2, 16, 8);
            }),
            "[bridge] q must be the artifact's F32 [1, 2, 16, 8] with strides "
            "256, 128, 8, found F32 [1, 2, 16, 8] with strides 256, 8, 16");
  EXPECT_EQ(refused([](BridgeBatch& b) { b.artifact.spec.attention.reset(); }),
            "[bridge] to run as attention, an artifact must declare it, found "
            "'attention'");
  EXPECT_TRUE(refused([](BridgeBatch& b) {
                b.artifact.program[100] ^= 1;
              }).starts_with("[bridge] "));
}

// Injected failures: without fallbacks the error is returned, with fallbacks
// another lane runs and the reason is kept.
TEST(RunAttention, ABridgeThatDoesNotStart) {
  BridgeBatch batch;
  for (const bool artifact : {false, true}) {
    SessionOptions options = batch.options();
    if (!artifact) options.artifact.reset();
    options.xla.plugin = "/nowhere/none.so";
    const auto strict = run_attention(batch.call(), options);
    ASSERT_FALSE(strict.ok());
    // A named lane is opened before there is any batch.
    const char* const due = artifact ? "[pjrt] "
                                     : "[bridge] it needs an artifact that JAX "
                                       "exported, found none";
    EXPECT_TRUE(strict.error().message.starts_with(due))
        << strict.error().message;
    options.fallback = {LaneId::cpu};
    const auto lenient = run_attention(batch.call(), options);
    ASSERT_TRUE(lenient.ok()) << lenient.error().message;
    EXPECT_EQ(lenient->executed, LaneId::cpu);
    const json r = json::parse(lenient->receipt);
    EXPECT_EQ(r["lane"]["chosen"], "jax_bridge");
    EXPECT_TRUE(r["artifact"].is_null());
    const char* const why =
        artifact ? "jax_bridge did not start: [pjrt] "
                 : "jax_bridge did not start: [dispatch] the jax_bridge lane "
                   "must be able to run this, found: it needs an artifact";
    EXPECT_TRUE(r["fallback"].get<std::string>().starts_with(why))
        << r["fallback"];
    EXPECT_TRUE(check_receipt(lenient->receipt).ok());
  }
}

}  // namespace
}  // namespace tessera::run
