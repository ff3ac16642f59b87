// run/session_test.cc: tests batches and layers on every lane, what a session
// refuses, and lanes that fail, with fallbacks and without.
#include "tessera/session.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/fail.h"
#include "base/trace.h"
#include "lanes/cpu/decode.h"
#include "run/session_state.h"
#include "tests/heap.h"
#include "tests/plugins.h"
#include "tests/routed_batch.h"
#include "tests/spans.h"

namespace tessera::run {
namespace {

using nlohmann::json;

constexpr int64_t kTokens = 48;
constexpr int64_t kHeads = 2;
constexpr int64_t kDim = 16;
constexpr char kChanged[] =
    "[run] facts must be as they were planned, found others (remake the batch "
    "when its facts change)";
constexpr char kFailed[] = "a batch must be prepared, found one that failed";

template <class T>
std::string message(const Result<T>& r) {
  return r ? "" : r.error().message;
}

Request packed_request(int64_t tokens = kTokens) {
  Request r;
  r.masks = {*parse_mask("causal & documents")};
  r.q_len = r.kv_len = tokens;
  r.tile = {8, 16};
  r.ceilings = {32, 8};  // enough for every batch of these tokens
  return r;
}

std::vector<int32_t> ids_of(int64_t length, int64_t tokens = kTokens) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < tokens; ++i) {
    ids.push_back(static_cast<int32_t>(i / length));
  }
  return ids;
}

// A batch of documents of this length.
OwnedBatch packed(int64_t length, int64_t tokens = kTokens) {
  OwnedFacts facts;
  facts.doc_ids = ids_of(length, tokens);
  return *OwnedBatch::make(packed_request(tokens), std::move(facts));
}

AttentionCall call_of_tests(bool backward) {
  AttentionCall call;
  call.shape = {kHeads, kHeads, kDim, kDim, {}, 0};
  call.backward = backward;
  return call;
}

// The arrays of one layer; all outputs start as NaN.
struct Layer {
  int64_t tokens;
  std::vector<float> q, k, v, dout, out, lse, dq, dk, dv;

  explicit Layer(unsigned seed, int64_t t = kTokens) : tokens(t) {
    const auto size = static_cast<size_t>(kHeads * tokens * kDim);
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (std::vector<float>* a : {&q, &k, &v, &dout}) {
      a->resize(size);
      for (float& x : *a) x = normal(random);
    }
    for (std::vector<float>* a : {&out, &dq, &dk, &dv}) a->assign(size, NAN);
    lse.assign(static_cast<size_t>(kHeads * tokens), NAN);
  }

  TensorView input(const std::vector<float>& a) const {
    return TensorView::bhsd(a.data(), Dtype::f32, 1, kHeads, tokens, kDim);
  }
  MutableTensorView output(std::vector<float>& a) const {
    return MutableTensorView::bhsd(a.data(), Dtype::f32, 1, kHeads, tokens,
                                   kDim);
  }
  ForwardTensors forward() {
    ForwardTensors t;
    t.q = input(q);
    t.k = input(k);
    t.v = input(v);
    t.out = output(out);
    t.lse = lse;
    return t;
  }
  Gradients gradients() {
    Gradients g;
    g.dout = input(dout);
    g.dq = output(dq);
    g.dk = output(dk);
    g.dv = output(dv);
    return g;
  }
  std::vector<std::vector<float>> outputs() const {
    return {out, lse, dq, dk, dv};
  }
};

// Both passes of the layer; an error is a failure of the test.
void run(Prepared& ready, Layer& layer) {
  const auto saved = ready.forward(layer.forward());
  ASSERT_TRUE(saved.ok()) << saved.error().message;
  EXPECT_EQ(message(ready.backward(*saved, layer.gradients())), "");
}

void expect_same(const Choice& a, const Choice& b) {
  EXPECT_EQ(a.lane, b.lane);
  EXPECT_EQ(a.plugin, b.plugin);
  EXPECT_EQ(a.method, b.method);
  EXPECT_EQ(a.request_class, b.request_class);
  EXPECT_EQ(a.reason, b.reason);
  ASSERT_EQ(a.gate.size(), b.gate.size());
  for (size_t i = 0; i < a.gate.size(); ++i) {
    EXPECT_EQ(gate_json({{a.gate[i]}}), gate_json({{b.gate[i]}}));
  }
  ASSERT_EQ(a.rejected.size(), b.rejected.size());
  for (size_t i = 0; i < a.rejected.size(); ++i) {
    EXPECT_EQ(a.rejected[i].lane, b.rejected[i].lane);
    EXPECT_EQ(a.rejected[i].reason, b.rejected[i].reason);
  }
}

// Skips the test if the plugin is not installed.
void need_plugin(LaneId lane) {
  if (lane != LaneId::xla) return;
  const auto plugin = testing::real_plugin("xla_cpu_pjrt");
  if (testing::is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
  ASSERT_TRUE(plugin.ok()) << plugin.error().message;
}

class SessionLane : public ::testing::TestWithParam<LaneId> {
 protected:
  void SetUp() override { need_plugin(GetParam()); }

  static bool compiles() { return GetParam() == LaneId::xla; }
  static std::string name() { return std::string(to_string(GetParam())); }
  static SessionOptions options() {
    SessionOptions out;
    out.lane = GetParam();
    return out;
  }
};
INSTANTIATE_TEST_SUITE_P(Each, SessionLane,
                         ::testing::Values(LaneId::cpu, LaneId::reference,
                                           LaneId::xla),
                         [](const auto& each) {
                           return std::string(to_string(each.param));
                         });

TEST_P(SessionLane, LayersPlanBindAndCompileOnce) {
  constexpr unsigned kLayers = 32;
  std::vector<Layer> layers;
  for (unsigned i = 0; i < kLayers; ++i) layers.emplace_back(i);
  const Trace trace;
  const OwnedBatch batch = packed(20);
  const auto session = Session::open(options());
  ASSERT_TRUE(session.ok()) << session.error().message;
  auto ready = session->prepare(batch, call_of_tests(true));
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  std::vector<Saved> saved;
  for (Layer& layer : layers) {
    auto ran = ready->forward(layer.forward());
    ASSERT_TRUE(ran.ok()) << ran.error().message;
    saved.push_back(*ran);
  }
  for (unsigned i = kLayers; i-- > 0;) {
    ASSERT_EQ(message(ready->backward(saved[i], layers[i].gradients())), "");
  }
  const Gradients last = layers[0].gradients();
  ASSERT_EQ(message(ready->receipt(saved[0], &last)), "");

  std::map<std::string, int> spans = testing::spans_of(trace);
  EXPECT_EQ(spans["plan make_plan"], 1);
  EXPECT_EQ(spans["plan bind"], 1);
  EXPECT_EQ(spans["plan contract"], 1);
  EXPECT_EQ(spans["run prepare"], 1);
  EXPECT_EQ(spans["run forward"], 32);
  EXPECT_EQ(spans["run backward"], 32);
  EXPECT_EQ(spans["pjrt compile"], compiles() ? 2 : 0);
  const Counters counters = ready->counters();
  EXPECT_EQ(counters.forwards, 32);
  EXPECT_EQ(counters.backwards, 32);
  EXPECT_EQ(counters.compiles, compiles() ? 2 : 0);
  EXPECT_EQ(counters.memory_hits, 0);

  // Each layer alone, by run_attention(). On lanes that compile only the first
  // and the last layer, since compiling is slow.
  for (unsigned i = 0; i < kLayers; i += compiles() ? kLayers - 1 : 1) {
    Layer alone(i);
    const RunCall call = {batch, call_of_tests(true).shape, alone.forward(),
                          alone.gradients()};
    const auto ran = run_attention(call, options());
    ASSERT_TRUE(ran.ok()) << ran.error().message;
    EXPECT_EQ(layers[i].outputs(), alone.outputs()) << i;
    EXPECT_EQ(ran->counters.tiles_run, counters.tiles_run);
  }
}

// Each layer's output is the next one's queries, and its gradient the gradient
// of the output below.
TEST_P(SessionLane, ArraysStayWithTheLaneBetweenLayers) {
  constexpr unsigned kLayers = 32;
  const OwnedBatch batch = packed(20);
  const auto session = Session::open(options());
  ASSERT_TRUE(session.ok()) << session.error().message;
  auto ready = session->prepare(batch, call_of_tests(true));
  ASSERT_TRUE(ready.ok()) << ready.error().message;

  std::vector<Layer> layers(kLayers, Layer(1));
  for (unsigned i = 0; i < kLayers; ++i) {
    if (i > 0) layers[i].q = layers[i - 1].out;
    ASSERT_TRUE(ready->forward(layers[i].forward()).ok());
  }
  for (unsigned i = kLayers; i-- > 0;) {
    if (i + 1 < kLayers) layers[i].dout = layers[i + 1].dq;
    const auto saved = ready->forward(layers[i].forward());
    ASSERT_TRUE(saved.ok());
    ASSERT_EQ(message(ready->backward(*saved, layers[i].gradients())), "");
  }

  Layer got(1);
  const auto before = ready->counters();
  const auto k = ready->put(ArrayRole::k, got.input(got.k));
  const auto v = ready->put(ArrayRole::v, got.input(got.v));
  auto q = ready->put(ArrayRole::q, got.input(got.q));
  auto dout = ready->put(ArrayRole::out, got.input(got.dout));
  ASSERT_TRUE(q.ok() && k.ok() && v.ok() && dout.ok());
  // put() copies, so later changes of the arrays have no effect.
  for (auto* a : {&got.q, &got.k, &got.v, &got.dout}) {
    a->assign(a->size(), NAN);
  }
  std::vector<DeviceSaved> saved;
  for (unsigned i = 0; i < kLayers; ++i) {
    auto ran = ready->forward(DeviceForward{*q, *k, *v, {}});
    ASSERT_TRUE(ran.ok()) << ran.error().message;
    EXPECT_EQ(ran->lse, layers[i].lse) << i;
    q = ran->out;
    saved.push_back(std::move(*ran));
  }
  ASSERT_EQ(message(ready->fetch(saved.back().out, got.output(got.out))), "");
  EXPECT_EQ(got.out, layers.back().out);
  for (unsigned i = kLayers; i-- > 0;) {
    const auto back = ready->backward(saved[i], *dout);
    ASSERT_TRUE(back.ok()) << back.error().message;
    ASSERT_EQ(message(ready->fetch(back->dk, got.output(got.dk))), "");
    ASSERT_EQ(message(ready->fetch(back->dv, got.output(got.dv))), "");
    EXPECT_EQ(got.dk, layers[i].dk) << i;
    EXPECT_EQ(got.dv, layers[i].dv) << i;
    dout = back->dq;
  }
  ASSERT_EQ(message(ready->fetch(*dout, got.output(got.dq))), "");
  EXPECT_EQ(got.dq, layers.front().dq);
  const Counters counters = ready->counters();
  EXPECT_EQ(counters.forwards - before.forwards, kLayers);
  EXPECT_EQ(counters.backwards - before.backwards, kLayers);
  EXPECT_EQ(counters.compiles, before.compiles);
  EXPECT_EQ(counters.tiles_run, before.tiles_run);
}

TEST_P(SessionLane, ArraysThatStayMustBeThisBatchsAndFit) {
  const auto session = Session::open(options());
  ASSERT_TRUE(session.ok()) << session.error().message;
  AttentionCall call = call_of_tests(false);
  call.shape.v_head_dim = 8;
  auto ready = session->prepare(packed(20), call);
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  Layer layer(1);
  const TensorView q = layer.input(layer.q);
  TensorView v = q;
  v.dim = 8;
  const auto there_q = ready->put(ArrayRole::q, q);
  const auto there_k = ready->put(ArrayRole::k, q);
  const auto there_v = ready->put(ArrayRole::v, v);
  ASSERT_TRUE(there_q.ok() && there_k.ok() && there_v.ok());

  EXPECT_EQ(message(ready->put(ArrayRole::v, q)),
            "[run] v must be [batch, kv_heads, kv_len, v_head_dim] = [1, 2, "
            "48, 8], found [1, 2, 48, 16]");
  TensorView odd = q;
  odd.dtype = Dtype::bf16;
  EXPECT_EQ(message(ready->put(ArrayRole::q, odd)),
            "[run] arrays must be as the call was prepared, F32, found BF16 "
            "for q");
  odd = q;
  odd.data = nullptr;
  EXPECT_EQ(message(ready->put(ArrayRole::q, odd)),
            "[run] data must be there, found a null pointer for q");
  MutableTensorView twice = layer.output(layer.dq);
  twice.head_stride = 0;
  EXPECT_TRUE(message(ready->fetch(*there_q, twice))
                  .starts_with("[run] elements of an output must not coincide"))
      << message(ready->fetch(*there_q, twice));

  const auto forward = [&](DeviceArray a, DeviceArray b, DeviceArray c) {
    return message(ready->forward(
        DeviceForward{std::move(a), std::move(b), std::move(c), {}}));
  };
  EXPECT_EQ(forward(*there_q, {}, *there_v),
            "[run] an array must have been put on the device for this batch, "
            "found none for k");
  EXPECT_EQ(forward(*there_q, *there_q, *there_v),
            "[run] an array must be like k, keys of dim 16, found one like q "
            "of dim 16 for k");
  EXPECT_EQ(forward(*there_q, *there_k, *there_k),
            "[run] an array must be like v, keys of dim 8, found one like k of "
            "dim 16 for v");
  const std::vector<float> sinks(2, 0.0F);
  EXPECT_EQ(message(ready->forward(
                DeviceForward{*there_q, *there_k, *there_v, sinks})),
            "[run] sink logits must be as the call was prepared, found 2 for "
            "0");
  auto saved = ready->forward(DeviceForward{*there_q, *there_k, *there_v, {}});
  ASSERT_TRUE(saved.ok()) << saved.error().message;
  EXPECT_EQ(message(ready->backward(*saved, saved->out)),
            "[run] a call must be prepared with backward, found forward alone");
  EXPECT_EQ(message(ready->fetch({}, layer.output(layer.out))),
            "[run] an array must have been put on the device for this batch, "
            "found none for q");
  StopFlag stop;
  stop.stop();
  const auto stopped = ready->forward(saved->in, &stop);
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().kind, ErrorKind::stopped);

  ASSERT_EQ(message(ready->next(packed(10))), "");
  EXPECT_EQ(forward(*there_q, *there_k, *there_v),
            "[run] an array must have been put on the device for this batch, "
            "found another batch's or lane's for q");
}

TEST_P(SessionLane, NextGivesWhatAFreshPrepareGives) {
  const auto session = Session::open(options());
  ASSERT_TRUE(session.ok()) << session.error().message;
  auto ready = session->prepare(packed(20), call_of_tests(true));
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  for (const int64_t length : {48, 7, 1, 13, 20}) {
    const OwnedBatch batch = packed(length);
    ASSERT_EQ(message(ready->next(batch)), "");
    EXPECT_EQ(&ready->batch().plan(), &batch.plan());
    auto fresh = session->prepare(batch, call_of_tests(true));
    ASSERT_TRUE(fresh.ok()) << fresh.error().message;
    Layer a(3), b(3);
    run(*ready, a);
    run(*fresh, b);
    EXPECT_EQ(a.outputs(), b.outputs()) << length;
    EXPECT_EQ(ready->counters().tiles_run, fresh->counters().tiles_run);
    EXPECT_EQ(ready->counters().pairs_run, fresh->counters().pairs_run);
    // All batches are under the ceilings: one program for each direction.
    EXPECT_EQ(ready->counters().compiles, compiles() ? 2 : 0);
    EXPECT_EQ(fresh->counters().compiles, 0);
    EXPECT_EQ(fresh->counters().memory_hits, compiles() ? 2 : 0);
  }
  EXPECT_EQ(ready->counters().forwards, 5);
  EXPECT_EQ(ready->counters().backwards, 5);

  // A batch of other lengths works too.
  const OwnedBatch longer = packed(30, 80);
  ASSERT_EQ(message(ready->next(longer)), "");
  EXPECT_EQ(message(ready->forward(Layer(1).forward())),
            "[run] q must have shape [1, 2, 80, 16], found [1, 2, 48, 16]");
  auto fresh = session->prepare(longer, call_of_tests(true));
  ASSERT_TRUE(fresh.ok()) << fresh.error().message;
  Layer a(4, 80), b(4, 80);
  run(*ready, a);
  run(*fresh, b);
  EXPECT_EQ(a.outputs(), b.outputs());
}

TEST_P(SessionLane, NextThatFailsLeavesNothingButAnotherNext) {
  const auto session = Session::open(options());
  ASSERT_TRUE(session.ok()) << session.error().message;
  auto ready = session->prepare(packed(20), call_of_tests(true));
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  Layer layer(1);
  const auto saved = ready->forward(layer.forward());
  ASSERT_TRUE(saved.ok());

  Request three = packed_request();
  three.masks.assign(3, *parse_mask("causal"));
  const auto wide = OwnedBatch::make(three, {});
  ASSERT_TRUE(wide.ok()) << wide.error().message;
  const std::string due =
      "[run] plan heads must divide heads, found 3 plan heads for 2 heads";
  EXPECT_EQ(message(session->prepare(*wide, call_of_tests(true))), due);
  EXPECT_EQ(message(ready->next(*wide)), due);
  const Gradients gradients = layer.gradients();
  EXPECT_EQ(message(ready->forward(layer.forward())),
            std::string("[run] ") + kFailed);
  EXPECT_EQ(message(ready->backward(*saved, gradients)),
            std::string("[run] ") + kFailed);
  EXPECT_EQ(message(ready->program_text()), std::string("[run] ") + kFailed);
  EXPECT_EQ(message(ready->receipt(*saved, &gradients)),
            std::string("[receipt] ") + kFailed);
  ASSERT_EQ(message(ready->next(packed(7))), "");
  run(*ready, layer);
}

// A batch above its ceilings is refused before any work, the next one too.
TEST_P(SessionLane, CeilingsHoldForEveryBatch) {
  Request narrow = packed_request();
  narrow.ceilings = {12, 4};
  OwnedFacts facts;
  facts.doc_ids = ids_of(8);
  const auto fits = OwnedBatch::make(narrow, facts);
  facts.doc_ids = ids_of(48);
  const auto wide = OwnedBatch::make(narrow, facts);
  ASSERT_TRUE(fits.ok() && wide.ok());
  const auto session = Session::open(options());
  ASSERT_TRUE(session.ok()) << session.error().message;
  const auto refused = session->prepare(*wide, call_of_tests(false));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::limit);
  EXPECT_TRUE(refused.error().message.starts_with("[contract] "));
  auto ready = session->prepare(*fits, call_of_tests(false));
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  EXPECT_EQ(message(ready->next(*wide)), refused.error().message);
}

TEST_P(SessionLane, AStopFlagThatIsSetStopsAndThenItRuns) {
  const auto session = Session::open(options());
  ASSERT_TRUE(session.ok()) << session.error().message;
  auto ready = session->prepare(packed(20), call_of_tests(true));
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  Layer layer(5), free(5);
  const std::string due =
      "[" + name() +
      "] a call must run to its end to give its outputs, found "
      "it stopped ";
  StopFlag stop;
  stop.stop();
  const auto none = ready->forward(layer.forward(), &stop);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().kind, ErrorKind::stopped);
  EXPECT_TRUE(none.error().message.starts_with(due)) << none.error().message;
  EXPECT_EQ(ready->counters().forwards, 0);
  stop.reset();
  const auto saved = ready->forward(layer.forward(), &stop);
  ASSERT_TRUE(saved.ok()) << saved.error().message;
  stop.stop();
  const auto half = ready->backward(*saved, layer.gradients(), &stop);
  ASSERT_FALSE(half.ok());
  EXPECT_EQ(half.error().kind, ErrorKind::stopped);
  EXPECT_TRUE(half.error().message.starts_with(due)) << half.error().message;
  EXPECT_EQ(ready->counters().backwards, 0);
  stop.reset();
  EXPECT_EQ(message(ready->backward(*saved, layer.gradients(), &stop)), "");

  auto fresh = session->prepare(packed(20), call_of_tests(true));
  ASSERT_TRUE(fresh.ok());
  run(*fresh, free);
  EXPECT_EQ(layer.outputs(), free.outputs());
}

TEST_P(SessionLane, AStopFlagMayAskAFunction) {
  const auto session = Session::open(options());
  ASSERT_TRUE(session.ok()) << session.error().message;
  auto ready = session->prepare(packed(20), call_of_tests(false));
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  Layer layer(5);
  bool wanted = true;
  const StopFlag stop([&wanted] { return wanted; });
  const auto none = ready->forward(layer.forward(), &stop);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().kind, ErrorKind::stopped);
  wanted = false;
  EXPECT_EQ(message(ready->forward(layer.forward(), &stop)), "");
}

TEST_P(SessionLane, ChoosesAsPrepareDoes) {
  const OwnedBatch batch = packed(20);
  SessionOptions rules = options();
  rules.lane.reset();
  for (const SessionOptions& o : {options(), rules}) {
    const auto session = Session::open(o);
    ASSERT_TRUE(session.ok()) << session.error().message;
    const auto choice = session->choose(batch, call_of_tests(true));
    ASSERT_TRUE(choice.ok()) << choice.error().message;
    const auto ready = session->prepare(batch, call_of_tests(true));
    ASSERT_TRUE(ready.ok()) << ready.error().message;
    expect_same(*choice, ready->choice());
    EXPECT_EQ(choice->lane, o.lane ? GetParam() : LaneId::cpu);
    EXPECT_EQ(ready->lane(), choice->lane);
    EXPECT_FALSE(ready->fallback().has_value());
  }
}

TEST_P(SessionLane, ShowsTheProgramThatItRuns) {
  const auto session = Session::open(options());
  ASSERT_TRUE(session.ok()) << session.error().message;
  const auto ready = session->prepare(packed(20), call_of_tests(true));
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  for (const bool backward : {false, true}) {
    const auto text = ready->program_text(backward);
    if (!compiles()) {
      ASSERT_FALSE(text.ok());
      EXPECT_EQ(text.error().kind, ErrorKind::unavailable);
      EXPECT_EQ(text.error().message,
                "[run] a lane must compile a program to give its text, found "
                "one that compiles none");
      continue;
    }
    ASSERT_TRUE(text.ok()) << text.error().message;
    EXPECT_NE(text->find("stablehlo."), std::string::npos);
    EXPECT_NE(text->find("func.func public @main"), std::string::npos);
  }
  const auto forward = session->prepare(packed(20), call_of_tests(false));
  ASSERT_TRUE(forward.ok());
  EXPECT_FALSE(forward->program_text(true).ok());
  if (compiles()) {
    EXPECT_NE(*ready->program_text(true), *ready->program_text(false));
    EXPECT_EQ(*forward->program_text(false), *ready->program_text(false));
  }
}

TEST_P(SessionLane, WarmedItCompilesNothing) {
  const auto session = Session::open(options());
  ASSERT_TRUE(session.ok()) << session.error().message;
  Facts present;
  present.doc_ids = Ints{};
  const auto warm =
      session->warm(packed_request(), present, call_of_tests(true));
  ASSERT_TRUE(warm.ok()) << warm.error().message;
  EXPECT_EQ(warm->compiles, compiles() ? 2 : 0);
  auto ready = session->prepare(packed(20), call_of_tests(true));
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  EXPECT_EQ(ready->counters().compiles, 0);
  EXPECT_EQ(ready->counters().memory_hits, compiles() ? 2 : 0);
  Layer layer(2);
  run(*ready, layer);
}

TEST_P(SessionLane, WhereItRuns) {
  const auto session = Session::open(options());
  ASSERT_TRUE(session.ok()) << session.error().message;
  const auto place = session->place();
  if (compiles()) {
    ASSERT_TRUE(place.ok()) << place.error().message;
    EXPECT_EQ(place->platform, "cpu");
    return;
  }
  EXPECT_EQ(message(place),
            "[run] a session must name a lane of a plugin to have a place, "
            "found " +
                name());
}

TEST_P(SessionLane, RoutedBatchesRunAndTheirReceiptsHaveTheRoutersCounts) {
  for (const RouteMeaning meaning :
       {RouteMeaning::exact, RouteMeaning::tile_union}) {
    const testing::RoutedBatch made = testing::routed_batch(1, meaning);
    testing::AttentionArrays arrays(made.attention);
    const testing::Wanted want = testing::wanted(arrays, compiles());
    Request request = arrays.request;
    request.ceilings = testing::kRoutedCeilings;
    const auto batch =
        OwnedBatch::route(request, own_facts(made.route.facts()),
                          made.route.inputs(), made.route.settings);
    ASSERT_TRUE(batch.ok()) << batch.error().message;
    ASSERT_NE(batch->routing(), nullptr);

    const ForwardTensors forward = arrays.forward(true);
    const Gradients gradients = arrays.gradients();
    const RunCall call = {*batch, made.attention.shape, forward, gradients};
    const auto session = Session::open(options());
    ASSERT_TRUE(session.ok()) << session.error().message;
    auto ready = session->prepare(*batch, call_of(call));
    ASSERT_TRUE(ready.ok()) << ready.error().message;
    const auto saved = ready->forward(forward);
    ASSERT_TRUE(saved.ok()) << saved.error().message;
    ASSERT_EQ(message(ready->backward(*saved, gradients)), "");
    EXPECT_EQ(forward_fault(want, forward), std::nullopt);
    EXPECT_EQ(backward_fault(made.attention, want, gradients), std::nullopt);

    const auto receipt = ready->receipt(*saved, &gradients);
    ASSERT_TRUE(receipt.ok()) << receipt.error().message;
    EXPECT_EQ(message(check_receipt(*receipt)), "");
    const json r = json::parse(*receipt)["routing"];
    const RouteResult& routed = *batch->routing();
    const RouteCounts& c = routed.counts;
    EXPECT_EQ(r["given"], false);
    EXPECT_EQ(r["settings"]["meaning"], to_string(meaning));
    EXPECT_EQ(r["settings"]["top"], made.route.settings.top);
    EXPECT_EQ(r["settings"]["stride"], made.route.settings.stride);
    EXPECT_EQ(r["heads"], routed.heads);
    EXPECT_GT(c.picks, 0);
    EXPECT_EQ(r["picks"], c.picks);
    EXPECT_EQ(r["removed"],
              c.removed_invalid + c.removed_documents + c.removed_future);
    EXPECT_EQ(r["union_blocks"], c.union_blocks);
    EXPECT_EQ(r["tile_rows"], c.tile_rows);
    EXPECT_EQ(r["widest_union"], routed.unions.widest);
    EXPECT_EQ(r["union_capacity"], routed.unions.capacity);
    EXPECT_GT(json::parse(*receipt)["ms"]["route"].get<double>(), 0);

    // The same picks, given by the caller, are not counted by the router.
    const auto given = OwnedBatch::copy(request, batch->facts());
    ASSERT_TRUE(given.ok());
    ASSERT_EQ(message(ready->next(*given)), "");
    const auto again = ready->forward(forward);
    ASSERT_TRUE(again.ok()) << again.error().message;
    ASSERT_EQ(message(ready->backward(*again, gradients)), "");
    const auto told = ready->receipt(*again, &gradients);
    ASSERT_TRUE(told.ok()) << told.error().message;
    EXPECT_EQ(json::parse(*told)["routing"]["given"], true);
    EXPECT_EQ(json::parse(*told)["output"], json::parse(*receipt)["output"]);
  }
}

TEST(Session, LayersLeaveNothingBehind) {
  for (const LaneId lane : {LaneId::cpu, LaneId::reference}) {
    SessionOptions options;
    options.lane = lane;
    options.cpu.threads = 1;
    const auto session = Session::open(options);
    ASSERT_TRUE(session.ok());
    auto ready = session->prepare(packed(20), call_of_tests(true));
    ASSERT_TRUE(ready.ok()) << ready.error().message;
    Layer layer(1);
    size_t after_four = 0;
    for (int i = 1; i <= 32; ++i) {
      run(*ready, layer);
      if (i == 4) after_four = testing::heap_bytes();
    }
    // Less than 600 bytes a layer; its arrays are 49 KiB.
    EXPECT_LT(testing::heap_bytes(), after_four + (16 << 10))
        << to_string(lane);
  }
}

// A plugin keeps some memory for itself with every layer, but no array of it.
TEST(Session, LayersOfAPluginLeaveNoArrayBehind) {
  ASSERT_NO_FATAL_FAILURE(need_plugin(LaneId::xla));
  if (::testing::Test::IsSkipped()) return;
  constexpr int64_t kMore = 16 * kTokens;
  SessionOptions options;
  options.lane = LaneId::xla;
  const auto session = Session::open(options);
  ASSERT_TRUE(session.ok()) << session.error().message;
  Request request = packed_request(kMore);
  request.ceilings = {};
  OwnedFacts facts;
  facts.doc_ids = ids_of(20, kMore);
  const auto batch = OwnedBatch::make(request, std::move(facts));
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  auto ready = session->prepare(*batch, call_of_tests(true));
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  Layer layer(1, kMore);
  const auto run_layers = [&] {
    for (int i = 0; i < 16; ++i) run(*ready, layer);
  };
  run_layers();  // by then the plugin has most of what it keeps
  EXPECT_LT(testing::least_left_by(run_layers),
            static_cast<int64_t>(16 * layer.q.size() * sizeof(float)));
}

// Decodes one token at a time. Memory is read within a call, when the lane
// holds all that it needs: later tokens take no more than the first.
TEST(Session, DecodeTakesTheMemoryOfTheTokenBefore) {
  constexpr int64_t kKeys = 32768, kSteps = 24;
  constexpr int64_t kManyHeads = 32, kValueDim = 64;
  size_t within = 0;
  SessionOptions options;
  options.lane = LaneId::cpu;
  options.cpu.threads = 1;
  options.cpu.progress = [&](double) {
    within = std::max(within, testing::heap_bytes());
  };
  const auto session = Session::open(options);
  ASSERT_TRUE(session.ok()) << session.error().message;
  Request request;
  request.masks = {*parse_mask("causal")};
  request.q_len = 1;
  request.kv_len = kKeys;
  request.tile = {8, 64};
  const auto facts_of = [](int64_t step) {
    const auto keys = static_cast<int32_t>(kKeys - kSteps + step);
    OwnedFacts facts;
    facts.valid_token_counts = {keys};
    facts.q_offsets = {keys - 1};
    return facts;
  };
  auto batch = OwnedBatch::make(request, facts_of(0));
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  AttentionCall call;
  call.shape = {kManyHeads, 1, 8, kValueDim, {}, 0};
  auto ready = session->prepare(*batch, call);
  ASSERT_TRUE(ready.ok()) << ready.error().message;

  const std::vector<float> keys(kKeys * kValueDim, 1);
  std::vector<float> out(kManyHeads * kValueDim);
  ForwardTensors t;
  t.q = TensorView::bhsd(keys.data(), Dtype::f32, 1, kManyHeads, 1, 8);
  t.k = TensorView::bhsd(keys.data(), Dtype::f32, 1, 1, kKeys, 8);
  t.v = TensorView::bhsd(keys.data(), Dtype::f32, 1, 1, kKeys, kValueDim);
  t.out = MutableTensorView::bhsd(out.data(), Dtype::f32, 1, kManyHeads, 1,
                                  kValueDim);
  std::vector<size_t> taken, left;
  for (int64_t step = 0; step < kSteps; ++step) {
    if (step > 0) {
      ASSERT_EQ(message(batch->remake(facts_of(step))), "");
      ASSERT_EQ(message(ready->next(*batch)), "");
    }
    within = 0;
    const size_t before = testing::heap_bytes();
    ASSERT_EQ(message(ready->forward(t)), "");
    taken.push_back(within - before);
    left.push_back(testing::heap_bytes());
  }
  // The first token takes the sums of values of each part of the keys.
  EXPECT_GT(taken[0], kKeys / cpu::kDecodeKeys * kManyHeads * kValueDim * 4);
  for (size_t i = 1; i < taken.size(); ++i) EXPECT_LT(taken[i], 4 << 10) << i;
  // There are two plans in turn: the previous batch's is held while the next is
  // made.
  for (size_t i = 4; i < left.size(); ++i) {
    EXPECT_LT(left[i], left[3] + (4 << 10)) << i;
  }
}

TEST(Session, OnlyWhatThisBatchSavedGoesBackward) {
  const auto session = Session::open({});
  ASSERT_TRUE(session.ok());
  auto ready = session->prepare(packed(20), call_of_tests(true));
  auto other = session->prepare(packed(20), call_of_tests(true));
  auto forward_alone = session->prepare(packed(20), call_of_tests(false));
  ASSERT_TRUE(ready.ok() && other.ok() && forward_alone.ok());
  Layer layer(1);
  const Gradients gradients = layer.gradients();
  const auto saved = ready->forward(layer.forward());
  ASSERT_TRUE(saved.ok()) << saved.error().message;
  const std::string another =
      "[run] a backward pass must be handed what this batch's forward pass "
      "gave, found another's";
  EXPECT_EQ(message(other->backward(*saved, gradients)), another);
  EXPECT_EQ(message(ready->backward(Saved{layer.forward()}, gradients)),
            another);
  EXPECT_EQ(message(forward_alone->backward(*saved, gradients)),
            "[run] a call must be prepared with backward, found forward alone");
  EXPECT_TRUE(std::isnan(layer.dq[0]));  // no refused call wrote
  EXPECT_EQ(message(ready->backward(*saved, gradients)), "");
  // A batch with the same facts is another batch.
  ASSERT_EQ(message(ready->next(packed(20))), "");
  EXPECT_EQ(message(ready->backward(*saved, gradients)), another);
  EXPECT_EQ(message(ready->receipt(*saved, &gradients)),
            "[receipt] a receipt must be of this batch's own passes, found "
            "another's arrays");
}

TEST(Session, AReceiptTellsOfPassesThatRan) {
  const auto session = Session::open({});
  ASSERT_TRUE(session.ok());
  auto ready = session->prepare(packed(20), call_of_tests(true));
  auto forward_alone = session->prepare(packed(20), call_of_tests(false));
  ASSERT_TRUE(ready.ok() && forward_alone.ok());
  Layer layer(1);
  const Gradients gradients = layer.gradients();
  const auto saved = ready->forward(layer.forward());
  ASSERT_TRUE(saved.ok()) << saved.error().message;
  const std::string wrong =
      "[receipt] gradients must be there for a call with a backward pass and "
      "only there, found ";
  const std::string none =
      "[receipt] a backward pass must have run, found none";
  EXPECT_EQ(message(ready->receipt(*saved)), wrong + "none");
  EXPECT_EQ(message(ready->receipt(*saved, &gradients)), none);
  EXPECT_EQ(message(forward_alone->receipt(*saved)),
            "[receipt] a receipt must be of this batch's own passes, found "
            "another's arrays");
  ASSERT_EQ(message(ready->backward(*saved, gradients)), "");
  const auto receipt = ready->receipt(*saved, &gradients);
  ASSERT_TRUE(receipt.ok()) << receipt.error().message;
  EXPECT_EQ(message(check_receipt(*receipt)), "");
  EXPECT_EQ(json::parse(*receipt)["direction"], "forward+backward");

  const auto alone = forward_alone->forward(layer.forward());
  ASSERT_TRUE(alone.ok());
  EXPECT_EQ(message(forward_alone->receipt(*alone, &gradients)),
            wrong + "some");
  EXPECT_EQ(json::parse(*forward_alone->receipt(*alone))["direction"],
            "forward");

  // A backward pass of the previous batch does not count for this one.
  ASSERT_EQ(message(ready->next(packed(7))), "");
  const auto next = ready->forward(layer.forward());
  ASSERT_TRUE(next.ok());
  EXPECT_EQ(message(ready->receipt(*next, &gradients)), none);
}

TEST(Session, ArraysAreCheckedWhenAPassRuns) {
  const auto session = Session::open({});
  ASSERT_TRUE(session.ok());
  Layer layer(1);
  std::vector<float> sinks(kHeads), dsinks(kHeads), dlse(kHeads * kTokens);
  AttentionCall call = call_of_tests(true);
  const auto forward = [&](const AttentionCall& c, auto change) {
    auto ready = session->prepare(packed(20), c);
    if (!ready) return message(ready);
    ForwardTensors t = layer.forward();
    change(t);
    const auto ran = ready->forward(t);
    EXPECT_EQ(ready->counters().forwards, ran.ok() ? 1 : 0);
    return message(ran);
  };
  EXPECT_EQ(forward(call, [](ForwardTensors&) {}), "");
  EXPECT_EQ(forward(call, [](ForwardTensors& t) { t.k.tokens = 47; }),
            "[run] k must have shape [1, 2, 48, 16], found [1, 2, 47, 16]");
  EXPECT_EQ(forward(call, [](ForwardTensors& t) { t.out.heads = 1; }),
            "[run] out must have shape [1, 2, 48, 16], found [1, 1, 48, 16]");
  EXPECT_EQ(forward(call, [](ForwardTensors& t) { t.q.dtype = Dtype::f16; }),
            "[run] arrays must be of one type, F32, BF16 or F16, found F16 for "
            "q");
  EXPECT_EQ(forward(call, [](ForwardTensors& t) { t.q.head_stride = -1; }),
            "[run] strides must be 0 or more, found one below for q");
  EXPECT_EQ(forward(call, [](ForwardTensors& t) { t.lse = {}; }),
            "[run] lse must have 96 values, found 0");
  EXPECT_EQ(
      forward(call_of_tests(false), [](ForwardTensors& t) { t.lse = {}; }), "");
  EXPECT_EQ(forward(call, [&](ForwardTensors& t) { t.sink_logits = sinks; }),
            "[run] sink logits must be as the call was prepared, found some "
            "for none");
  AttentionCall with_sinks = call;
  with_sinks.sink_logits = true;
  EXPECT_EQ(forward(with_sinks, [](ForwardTensors&) {}),
            "[run] sink logits must be as the call was prepared, found none "
            "for some");
  EXPECT_EQ(forward(with_sinks,
                    [&](ForwardTensors& t) {
                      t.sink_logits = std::span(sinks).first(1);
                    }),
            "[run] sink_logits must have 2 values, found 1");
  AttentionCall three_heads = call;
  three_heads.shape.kv_heads = 3;
  EXPECT_EQ(forward(three_heads, [](ForwardTensors&) {}),
            "[run] kv_heads must divide heads, found 3 kv_heads for 2 heads");
  AttentionCall many = call;
  many.shape.heads = int64_t{1} << 62;
  EXPECT_EQ(message(session->choose(packed(20), many)),
            "[run] heads must be from 1 to 65536, found 4611686018427387904");
  AttentionCall forward_alone = call_of_tests(false);
  forward_alone.dlse = true;
  EXPECT_EQ(forward(forward_alone, [](ForwardTensors&) {}),
            "[run] dlse goes with backward, found it alone");

  const auto backward = [&](const AttentionCall& c, auto change) {
    auto ready = session->prepare(packed(20), c);
    EXPECT_EQ(message(ready), "");
    ForwardTensors t = layer.forward();
    Gradients g = layer.gradients();
    if (c.sink_logits) {
      t.sink_logits = sinks;
      g.dsink_logits = dsinks;
    }
    if (c.dlse) g.dlse = dlse;
    const auto saved = ready->forward(t);
    EXPECT_EQ(message(saved), "");
    change(g);
    const auto ran = ready->backward(*saved, g);
    EXPECT_EQ(ready->counters().backwards, ran.ok() ? 1 : 0);
    return message(ran);
  };
  AttentionCall all = with_sinks;
  all.dlse = true;
  EXPECT_EQ(backward(call, [](Gradients&) {}), "");
  EXPECT_EQ(backward(all, [](Gradients&) {}), "");
  EXPECT_EQ(backward(call, [](Gradients& g) { g.dq.tokens = 1; }),
            "[run] dq must have shape [1, 2, 48, 16], found [1, 2, 1, 16]");
  EXPECT_EQ(backward(call, [](Gradients& g) { g.dout.dtype = Dtype::bf16; }),
            "[run] arrays must be of one type, F32, BF16 or F16, found BF16 "
            "for dout");
  EXPECT_EQ(backward(call, [&](Gradients& g) { g.dlse = dlse; }),
            "[run] dlse must be as the call was prepared, found some for none");
  EXPECT_EQ(backward(all, [](Gradients& g) { g.dlse = {}; }),
            "[run] dlse must be as the call was prepared, found none for some");
  EXPECT_EQ(backward(all, [](Gradients& g) { g.dlse = g.dlse.first(5); }),
            "[run] dlse must have 96 values, found 5");
  EXPECT_EQ(backward(all, [](Gradients& g) { g.dsink_logits = {}; }),
            "[run] dsink_logits must have 2 values, found 0");
}

TEST(Session, FactsThatChangedUnderTheirBatchAreRefused) {
  std::vector<int32_t> ids = ids_of(20);
  Facts facts;
  facts.doc_ids = ids;
  auto batch = BorrowedBatch::make(packed_request(), facts);
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  const auto session = Session::open({});
  ASSERT_TRUE(session.ok());
  auto ready = session->prepare(*batch, call_of_tests(true));
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  ids.back() = 9;
  EXPECT_EQ(message(session->prepare(*batch, call_of_tests(true))), kChanged);
  EXPECT_EQ(message(session->choose(*batch, call_of_tests(true))), kChanged);
  EXPECT_EQ(message(ready->next(*batch)), kChanged);
  ASSERT_EQ(message(batch->remake(facts)), "");
  EXPECT_EQ(message(session->prepare(*batch, call_of_tests(true))), "");
  ASSERT_EQ(message(ready->next(*batch)), "");
  Layer layer(1);
  run(*ready, layer);
  // A remake that failed leaves no batch to prepare.
  const std::vector<int32_t> few(3);
  facts.doc_ids = few;
  EXPECT_FALSE(batch->remake(facts).ok());
  EXPECT_EQ(message(ready->next(*batch)),
            "[run] a batch must be there, found a remake that failed");
}

// A prepared batch stays as it was when its handle is remade.
TEST(Session, ARemakeLeavesWhatIsPreparedAsItIs) {
  OwnedBatch batch = packed(20);
  const auto session = Session::open({});
  ASSERT_TRUE(session.ok());
  auto ready = session->prepare(batch, call_of_tests(true));
  ASSERT_TRUE(ready.ok());
  Layer before(1), after(1);
  run(*ready, before);
  OwnedFacts facts;
  facts.doc_ids = ids_of(5);
  ASSERT_EQ(message(batch.remake(facts)), "");
  run(*ready, after);
  EXPECT_EQ(before.outputs(), after.outputs());
  ASSERT_EQ(message(ready->next(batch)), "");
  run(*ready, after);
  EXPECT_NE(before.outputs(), after.outputs());
}

TEST(Session, AStepOfDecodingStopsToo) {
  Request request;
  request.masks = {*parse_mask("causal")};
  request.q_len = 1;
  request.kv_len = 300;
  request.tile = {8, 16};
  const auto batch = OwnedBatch::make(request, {});
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  SessionOptions options;
  options.lane = LaneId::cpu;
  const auto session = Session::open(options);
  ASSERT_TRUE(session.ok());
  auto ready = session->prepare(*batch, call_of_tests(false));
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  Layer query(1, 1), keys(2, 300);
  ForwardTensors t = query.forward();
  t.k = keys.input(keys.k);
  t.v = keys.input(keys.v);
  StopFlag stop;
  stop.stop();
  const auto ran = ready->forward(t, &stop);
  ASSERT_FALSE(ran.ok());
  EXPECT_EQ(ran.error().kind, ErrorKind::stopped);
  stop.reset();
  EXPECT_EQ(message(ready->forward(t, &stop)), "");
  EXPECT_FALSE(std::isnan(query.out[0]));
}

// A batch of many blocks, none of which is skipped.
constexpr int64_t kLong = 2048;
Result<OwnedBatch> long_batch() {
  Request request;
  request.q_len = request.kv_len = kLong;
  request.masks = {*parse_mask("full")};
  request.tile = {64, 64};
  return OwnedBatch::make(request, {});
}

TEST(Session, ALongCallStopsFromAnotherThread) {
  const auto batch = long_batch();
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  std::atomic<bool> begun{false};
  SessionOptions options;
  options.lane = LaneId::cpu;
  options.cpu.threads = 1;
  options.cpu.progress = [&](double) { begun = true; };
  const auto session = Session::open(options);
  ASSERT_TRUE(session.ok());
  auto ready = session->prepare(*batch, call_of_tests(false));
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  Layer layer(1, kLong);
  StopFlag stop;
  std::atomic<bool> over{false};
  std::thread other([&] {
    while (!begun && !over) std::this_thread::yield();
    stop.stop();
  });
  const auto ran = ready->forward(layer.forward(), &stop);
  over = true;
  other.join();
  EXPECT_TRUE(ran.ok() || ran.error().kind == ErrorKind::stopped)
      << ran.error().message;
  stop.reset();
  EXPECT_EQ(message(ready->forward(layer.forward(), &stop)), "");
  EXPECT_FALSE(std::isnan(layer.out.back()));
}

// The flag is set when the first of many blocks is done, so that the test fails
// for a pass that reads the flag only at its start, or never.
TEST(Session, AFlagThatIsSetWhileAPassRunsStopsIt) {
  const auto batch = long_batch();
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  StopFlag stop;
  bool stops = true;
  SessionOptions options;
  options.lane = LaneId::cpu;
  options.cpu.threads = 1;
  options.cpu.progress = [&](double) {
    if (stops) stop.stop();
  };
  const auto session = Session::open(options);
  ASSERT_TRUE(session.ok()) << session.error().message;
  auto ready = session->prepare(*batch, call_of_tests(true));
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  const auto expect_stopped = [](const auto& pass, std::string_view of) {
    ASSERT_FALSE(pass.ok());
    EXPECT_EQ(pass.error().kind, ErrorKind::stopped);
    const std::string& why = pass.error().message;
    EXPECT_TRUE(why.starts_with(
        "[cpu] a call must run to its end to give its outputs, found it "
        "stopped after 1 of "))
        << why;
    EXPECT_TRUE(why.ends_with(of)) << why;
  };
  Layer layer(1, kLong);
  expect_stopped(ready->forward(layer.forward(), &stop), " blocks of queries");
  stops = false;
  stop.reset();
  const auto saved = ready->forward(layer.forward(), &stop);
  ASSERT_TRUE(saved.ok()) << saved.error().message;
  stops = true;
  expect_stopped(ready->backward(*saved, layer.gradients(), &stop),
                 " blocks of keys");
  EXPECT_EQ(ready->counters().forwards, 1);
  EXPECT_EQ(ready->counters().backwards, 0);
}

TEST(Session, SomeQuestionsNeedALaneThatWasNamed) {
  const auto session = Session::open({});
  ASSERT_TRUE(session.ok());
  const std::string due =
      "[run] a session must be opened with a named lane to answer for that "
      "lane, found none";
  EXPECT_EQ(message(session->warm(packed_request(), {}, call_of_tests(false))),
            due);
  EXPECT_EQ(message(session->place()), due);
  SessionOptions options;
  options.lane = LaneId::cuda;
  const auto none = Session::open(options);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().kind, ErrorKind::unavailable);
  EXPECT_EQ(none.error().message,
            "[dispatch] a lane must run here, found cuda");
}

class SessionMemory : public ::testing::TestWithParam<LaneId> {
 protected:
  void SetUp() override { need_plugin(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Each, SessionMemory,
                         ::testing::Values(LaneId::reference, LaneId::xla),
                         [](const auto& each) {
                           return std::string(to_string(each.param));
                         });

TEST_P(SessionMemory, ALaneThatDoesNotFitIsPassedOver) {
  double free = 0;
  int asked = 0;
  SessionOptions options;
  options.lane = GetParam();
  options.memory = [&] {
    ++asked;
    return free;
  };
  const auto strict = Session::open(options);
  ASSERT_TRUE(strict.ok()) << strict.error().message;
  EXPECT_EQ(asked, 0);
  const auto refused = strict->prepare(packed(20), call_of_tests(false));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::limit);
  const std::string due =
      "[run] the arrays must fit the memory that is free, found ";
  EXPECT_TRUE(refused.error().message.starts_with(due))
      << refused.error().message;
  EXPECT_EQ(asked, 1);

  options.fallback = {LaneId::cpu};  // takes no memory forward
  const auto lenient = Session::open(options);
  ASSERT_TRUE(lenient.ok());
  auto ready = lenient->prepare(packed(20), call_of_tests(false));
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  EXPECT_EQ(ready->lane(), LaneId::cpu);
  EXPECT_EQ(ready->choice().lane, GetParam());
  EXPECT_EQ(ready->fallback(),
            std::string(to_string(GetParam())) +
                " did not start: " + refused.error().message);
  Layer layer(1);
  EXPECT_EQ(message(ready->forward(layer.forward())), "");

  free = 1e9;
  const auto roomy = lenient->prepare(packed(20), call_of_tests(false));
  ASSERT_TRUE(roomy.ok()) << roomy.error().message;
  EXPECT_EQ(roomy->lane(), GetParam());
  EXPECT_FALSE(roomy->fallback().has_value());
}

// Fake lanes that fail where they are told to, and else run and write nothing.
enum class Fail : uint8_t {
  never,
  open,
  prepare,
  forward,
  second_forward,
  backward
};

struct Fakes {
  std::map<LaneId, Fail> fail;  // other lanes never fail
  std::vector<LaneId> asked;    // lanes that were opened
  int handed_back = 0;          // work of an earlier batch
};
Fakes fakes;  // a lane's `open` is a plain function

Error fail_of(LaneId lane) {
  return unavailable("test", "it must start, found {}", to_string(lane));
}

class FakeWork : public lanes::LaneWork {
 public:
  explicit FakeWork(LaneId lane) : lane_(lane) {}
  const lanes::WorkFacts& facts() const override { return facts_; }
  Result<lanes::PassRun> forward(const ForwardTensors&,
                                 const StopFlag*) override {
    const Fail fail = fakes.fail[lane_];
    if (fail == Fail::forward) return fail_of(lane_);
    if (fail == Fail::second_forward && forwards_++ == 1) return fail_of(lane_);
    lanes::PassRun out;
    out.tiles_run = 7;
    return out;
  }
  Result<lanes::PassRun> backward(const ForwardTensors&, const Gradients&,
                                  const StopFlag*) override {
    if (fakes.fail[lane_] == Fail::backward) return fail_of(lane_);
    return lanes::PassRun{};
  }

 private:
  LaneId lane_;
  lanes::WorkFacts facts_;
  int forwards_ = 0;
};

class FakeLane : public lanes::OpenLane {
 public:
  explicit FakeLane(LaneId lane) : lane_(lane) {}
  Result<std::unique_ptr<lanes::LaneWork>> prepare(
      const Batch&, const AttentionCall&,
      std::unique_ptr<lanes::LaneWork> before) override {
    if (before) ++fakes.handed_back;
    if (fakes.fail[lane_] == Fail::prepare) return fail_of(lane_);
    return std::unique_ptr<lanes::LaneWork>(std::make_unique<FakeWork>(lane_));
  }
  double bytes(const Request&, const AttentionCall&) const override {
    return 0;
  }

 private:
  LaneId lane_;
};

template <LaneId lane>
Result<std::unique_ptr<lanes::OpenLane>> open_fake(const lanes::LaneOptions&) {
  fakes.asked.push_back(lane);
  if (fakes.fail[lane] == Fail::open) return fail_of(lane);
  return std::unique_ptr<lanes::OpenLane>(std::make_unique<FakeLane>(lane));
}

constexpr LaneId kRunning[] = {LaneId::cpu, LaneId::xla, LaneId::reference};
constexpr Fail kNoStart[] = {Fail::open, Fail::prepare, Fail::forward};
constexpr lanes::Lane kFakeLanes[] = {
    {LaneId::cpu, open_fake<LaneId::cpu>},
    {LaneId::xla, open_fake<LaneId::xla>},
    {LaneId::reference, open_fake<LaneId::reference>}};

class Fallback : public ::testing::Test {
 protected:
  void SetUp() override { fakes = {}; }

  struct Ran {
    LaneId lane;
    std::optional<std::string> reason;
    std::vector<FailedLane> failed;
    int64_t tiles;
    Choice choice;
  };
  static Result<Ran> execute(LaneId lane, std::vector<LaneId> order,
                             int64_t dim = 64) {
    SessionOptions options;
    options.lane = lane;
    options.fallback = std::move(order);
    return execute(std::move(options), dim);
  }
  // Two layers forward and one backward; the arrays are not read.
  static Result<Ran> execute(SessionOptions options, int64_t dim = 64) {
    Request request;
    request.masks = {*parse_mask("causal")};
    request.q_len = request.kv_len = 64;
    const auto batch = OwnedBatch::make(request, {});
    if (!batch) return batch.error();
    const auto session = open_session(std::move(options), kFakeLanes);
    if (!session) return session.error();
    AttentionCall call;
    call.shape = {2, 2, dim, dim, {}, 0};
    call.backward = true;
    auto ready = session->prepare(*batch, call);
    if (!ready) return ready.error();
    std::vector<float> array(static_cast<size_t>(2 * 64 * dim));
    const auto out =
        MutableTensorView::bhsd(array.data(), Dtype::f32, 1, 2, 64, dim);
    const TensorView in = as_input(out);
    const std::span<float> lse = std::span(array).first(2 * 64);
    const ForwardTensors tensors = {in, in, in, {}, out, lse};
    const Gradients gradients = {in, {}, out, out, out, {}};
    auto saved = ready->forward(tensors);
    if (!saved) {
      // A further call says that the batch is not prepared.
      if (!ready->state().work) {
        EXPECT_EQ(message(ready->forward(tensors)),
                  std::string("[run] ") + kFailed);
      }
      return saved.error();
    }
    if (auto second = ready->forward(tensors); !second) return second.error();
    if (auto e = ready->backward(*saved, gradients); !e) return e.error();
    return Ran{ready->lane(), ready->fallback(), ready->state().failed,
               ready->counters().tiles_run, ready->choice()};
  }
};

TEST_F(Fallback, StrictIsTheLanesOwnError) {
  for (const LaneId lane : kRunning) {
    for (const Fail fail : kNoStart) {
      fakes = {{{lane, fail}}, {}, 0};
      const auto r = execute(lane, {});
      ASSERT_FALSE(r.ok());
      EXPECT_EQ(r.error().message,
                "[test] it must start, found " + std::string(to_string(lane)));
      EXPECT_EQ(r.error().kind, ErrorKind::unavailable);
      EXPECT_EQ(fakes.asked, std::vector{lane});
    }
  }
}

// A named lane without fallbacks is opened at once.
TEST_F(Fallback, StrictOpensBeforeAnyBatch) {
  SessionOptions options;
  options.lane = LaneId::xla;
  fakes.fail[LaneId::xla] = Fail::open;
  EXPECT_EQ(message(open_session(options, kFakeLanes)),
            "[test] it must start, found xla");
  options.fallback = {LaneId::cpu};
  fakes.asked.clear();
  EXPECT_TRUE(open_session(options, kFakeLanes).ok());
  EXPECT_TRUE(fakes.asked.empty());
}

// Arrays that were put on one lane cannot be used on another.
TEST_F(Fallback, ArraysStayWithTheLaneThatTheyWerePutOn) {
  fakes.fail[LaneId::xla] = Fail::forward;
  SessionOptions options;
  options.lane = LaneId::xla;
  options.fallback = {LaneId::reference};
  const auto session = open_session(std::move(options), kFakeLanes);
  ASSERT_TRUE(session.ok()) << session.error().message;
  Request request;
  request.masks = {*parse_mask("causal")};
  request.q_len = request.kv_len = 64;
  const auto batch = OwnedBatch::make(request, {});
  AttentionCall call;
  call.shape = {2, 2, 64, 64, {}, 0};
  auto ready = session->prepare(*batch, call);
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  std::vector<float> array(2 * 64 * 64);
  const auto out =
      MutableTensorView::bhsd(array.data(), Dtype::f32, 1, 2, 64, 64);
  const TensorView in = as_input(out);
  const auto q = ready->put(ArrayRole::q, in);
  const auto k = ready->put(ArrayRole::k, in);
  ASSERT_TRUE(q.ok() && k.ok());
  EXPECT_EQ(message(ready->fetch(*q, out)), "");
  ASSERT_EQ(message(ready->forward({in, in, in, {}, out, {}})), "");
  ASSERT_EQ(ready->lane(), LaneId::reference);
  const std::string gone =
      "[run] an array must have been put on the device for this batch, found "
      "another batch's or lane's for q";
  EXPECT_EQ(message(ready->forward(DeviceForward{*q, *k, *k, {}})), gone);
  EXPECT_EQ(message(ready->fetch(*q, out)), gone);
}

TEST_F(Fallback, LenientGoesDownTheOrder) {
  for (const LaneId lane : kRunning) {
    std::vector<LaneId> order;
    for (const LaneId other : kRunning) {
      if (other != lane) order.push_back(other);
    }
    for (const Fail first_fails : kNoStart) {
      for (const Fail second_fails :
           {Fail::never, Fail::open, Fail::prepare, Fail::forward}) {
        const bool second_too = second_fails != Fail::never;
        fakes = {{{lane, first_fails}, {order[0], second_fails}}, {}, 0};
        const auto r = execute(lane, order);
        ASSERT_TRUE(r.ok()) << r.error().message;
        EXPECT_EQ(r->lane, order[second_too ? 1 : 0]);
        EXPECT_EQ(r->tiles, 7);
        const std::string first(to_string(lane));
        std::string due =
            first + " did not start: [test] it must start, found " + first;
        if (second_too) {
          const std::string second(to_string(order[0]));
          due += "; " + second +
                 " did not start: [test] it must start, found " + second;
        }
        EXPECT_EQ(r->reason, due);
        EXPECT_EQ(fakes.asked.size(), second_too ? 3u : 2u);
      }
    }
  }
}

TEST_F(Fallback, ALaneThatStartsNeedsNoReason) {
  for (const LaneId lane : kRunning) {
    fakes = {};
    const auto r = execute(lane, {LaneId::reference});
    ASSERT_TRUE(r.ok());
    EXPECT_EQ(r->lane, lane);
    EXPECT_FALSE(r->reason.has_value());
    EXPECT_EQ(fakes.asked, std::vector{lane});
  }
}

// A lane that has run a pass has started, so no fallback steps in.
TEST_F(Fallback, AFailureAfterForwardIsAnError) {
  for (const LaneId lane : kRunning) {
    for (const Fail fail : {Fail::second_forward, Fail::backward}) {
      fakes = {{{lane, fail}}, {}, 0};
      const LaneId other = lane == LaneId::cpu ? LaneId::xla : LaneId::cpu;
      const auto r = execute(lane, {other});
      ASSERT_FALSE(r.ok());
      EXPECT_TRUE(r.error().message.starts_with("[test] "));
      EXPECT_EQ(fakes.asked, std::vector{lane});
    }
  }
}

TEST_F(Fallback, EveryLaneMayFail) {
  for (const Fail fail : kNoStart) {
    fakes = {{{LaneId::cpu, fail}, {LaneId::xla, fail}}, {}, 0};
    const auto r = execute(LaneId::xla, {LaneId::cpu});
    ASSERT_FALSE(r.ok());
    EXPECT_EQ(
        r.error().message,
        "[dispatch] a lane must start, found that none did: xla did not start: "
        "[test] it must start, found xla; cpu did not start: [test] it "
        "must start, found cpu");
    EXPECT_EQ(r.error().kind, ErrorKind::unavailable);
  }
}

// Lanes that cannot run the request are passed over without being opened.
TEST_F(Fallback, OnlyLanesThatCanAreAsked) {
  const auto r = execute(LaneId::cpu, {LaneId::xla, LaneId::reference}, 12);
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_EQ(r->lane, LaneId::reference);
  EXPECT_EQ(fakes.asked, std::vector{LaneId::reference});
  ASSERT_EQ(r->failed.size(), 2u);
  EXPECT_EQ(r->failed[0].lane, LaneId::cpu);
  EXPECT_EQ(r->failed[0].why,
            "[dispatch] the cpu lane must be able to run this, found: its head "
            "dim is a multiple of 8 up to 256, not 12");
}

// A machine without plugins, with a table in which the cpu lane's kernel has
// this verdict.
SessionOptions with_wrong_cpu(GateVerdict verdict) {
  SessionOptions out;
  out.machine = Machine{"A CPU", 8, {Isa::portable}, true, true, {}};
  GateRow row;
  row.kernel = "cpu/forward";
  row.machine = out.machine->key();
  row.verdict = verdict;
  out.gate.rows = {row};
  return out;
}

// A wrong kernel runs neither by the rules nor as a fallback, only by name.
TEST_F(Fallback, AWrongKernelStepsInForNone) {
  for (const GateVerdict verdict :
       {GateVerdict::wrong, GateVerdict::out_of_hot_loop}) {
    const std::string barred = "the gate on this machine: cpu/forward is " +
                               std::string(to_string(verdict));
    const std::string why =
        "[dispatch] the cpu lane must not be kept out to run, found: " + barred;
    SessionOptions options = with_wrong_cpu(verdict);
    const auto strict = execute(options);
    ASSERT_FALSE(strict.ok());
    EXPECT_NE(strict.error().message.find("cpu: " + barred), std::string::npos)
        << strict.error().message;

    for (const std::vector<LaneId>& order :
         {std::vector{LaneId::reference}, {LaneId::cpu, LaneId::reference}}) {
      fakes = {};
      options.fallback = order;
      const auto r = execute(options);
      ASSERT_TRUE(r.ok()) << r.error().message;
      EXPECT_EQ(r->lane, LaneId::reference);
      EXPECT_EQ(r->reason, "cpu did not start: " + why);
      ASSERT_EQ(r->choice.gate.size(), 1U);
      EXPECT_EQ(r->choice.gate[0].verdict, verdict);
      EXPECT_EQ(fakes.asked, std::vector{LaneId::reference});
    }

    fakes = {};
    options.fallback = {LaneId::cpu};
    EXPECT_EQ(message(execute(options)), why);
    EXPECT_TRUE(fakes.asked.empty());

    fakes = {{{LaneId::xla, Fail::prepare}}, {}, 0};
    options.lane = LaneId::xla;
    options.fallback = {LaneId::cpu, LaneId::reference};
    const auto stepped = execute(options);
    ASSERT_TRUE(stepped.ok()) << stepped.error().message;
    EXPECT_EQ(stepped->lane, LaneId::reference);
    ASSERT_EQ(stepped->failed.size(), 2U);
    EXPECT_EQ(stepped->failed[1].lane, LaneId::cpu);
    EXPECT_EQ(stepped->failed[1].why, why);
    EXPECT_EQ(fakes.asked, (std::vector{LaneId::xla, LaneId::reference}));

    fakes = {};
    options.lane = LaneId::cpu;
    const auto named = execute(options);
    ASSERT_TRUE(named.ok()) << named.error().message;
    EXPECT_EQ(named->lane, LaneId::cpu);
    EXPECT_FALSE(named->reason.has_value());
  }
  // A lane that the gate does not keep out steps in.
  SessionOptions options = with_wrong_cpu(GateVerdict::drop);
  options.lane = LaneId::xla;
  options.fallback = {LaneId::cpu};
  fakes = {{{LaneId::xla, Fail::open}}, {}, 0};
  const auto r = execute(options);
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_EQ(r->lane, LaneId::cpu);
}

TEST_F(Fallback, OnlyLanesOfEqualMeaning) {
  const auto refused = [](std::vector<LaneId> order) {
    const auto r = check_fallback(order);
    return r ? std::string() : r.error().message;
  };
  EXPECT_EQ(refused({LaneId::cpu, LaneId::xla, LaneId::reference}), "");
  EXPECT_EQ(refused({LaneId::jax_bridge}),
            "[dispatch] a fallback must mean the same as the request, found "
            "jax_bridge, which computes what its artifact holds");
  EXPECT_EQ(refused({LaneId::mosaic}), "");
  EXPECT_EQ(refused({LaneId::cuda}),
            "[dispatch] a fallback must be a lane that runs, found cuda: this "
            "version has no cuda lane");
  EXPECT_EQ(refused({LaneId::cpu, LaneId::cpu}),
            "[dispatch] a fallback is named once, found cpu twice");
  EXPECT_EQ(message(execute(LaneId::cpu, {LaneId::jax_bridge})),
            refused({LaneId::jax_bridge}));
  EXPECT_TRUE(fakes.asked.empty());
}

// If the caller stops the first pass, no other lane steps in.
TEST_F(Fallback, AStoppedPassIsNoFailureToStart) {
  SessionOptions options;
  options.lane = LaneId::cpu;
  options.fallback = {LaneId::reference};
  const auto session = Session::open(options);
  ASSERT_TRUE(session.ok());
  auto ready = session->prepare(packed(20), call_of_tests(false));
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  Layer layer(1);
  StopFlag stop;
  stop.stop();
  const auto ran = ready->forward(layer.forward(), &stop);
  ASSERT_FALSE(ran.ok());
  EXPECT_EQ(ran.error().kind, ErrorKind::stopped);
  EXPECT_EQ(ready->lane(), LaneId::cpu);
  EXPECT_FALSE(ready->fallback().has_value());
  stop.reset();
  EXPECT_EQ(message(ready->forward(layer.forward(), &stop)), "");
}

TEST_F(Fallback, NextHandsBackTheWorkBefore) {
  SessionOptions options;
  options.lane = LaneId::cpu;
  const auto session = open_session(options, kFakeLanes);
  ASSERT_TRUE(session.ok());
  auto ready = session->prepare(packed(20), call_of_tests(false));
  ASSERT_TRUE(ready.ok());
  EXPECT_EQ(fakes.handed_back, 0);
  EXPECT_EQ(message(ready->next(packed(7))), "");
  EXPECT_EQ(fakes.handed_back, 1);
  fakes.fail[LaneId::cpu] = Fail::prepare;
  EXPECT_EQ(message(ready->next(packed(5))), "[test] it must start, found cpu");
  fakes.fail.clear();
  EXPECT_EQ(message(ready->next(packed(5))), "");
  EXPECT_EQ(fakes.asked, std::vector{LaneId::cpu});  // opened once
}

}  // namespace
}  // namespace tessera::run
