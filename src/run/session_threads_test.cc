// run/session_threads_test.cc: tests sessions from many threads, one for each
// thread and one for all; meant for the thread sanitizer.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <thread>
#include <vector>

#include "tessera/session.h"

namespace tessera::run {
namespace {

constexpr int kThreads = 4;
constexpr int kBatches = 5;
constexpr int64_t kTokens = 96;
constexpr int64_t kHeads = 2;
constexpr int64_t kDim = 16;

template <class Work>
void on_threads(Work work) {
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back(work, t);
  for (std::thread& t : threads) t.join();
}

OwnedBatch batch_of(int number) {
  Request request;
  request.masks = {*parse_mask("causal & documents")};
  request.q_len = request.kv_len = kTokens;
  request.tile = {16, 16};
  OwnedFacts facts;
  facts.doc_ids.emplace();
  for (int64_t i = 0; i < kTokens; ++i) {
    facts.doc_ids->push_back(static_cast<int32_t>(i / (7 + 20 * number)));
  }
  return *OwnedBatch::make(std::move(request), std::move(facts));
}

AttentionCall call_of_tests() {
  AttentionCall call;
  call.shape = {kHeads, kHeads, kDim, kDim, {}, 0};
  call.backward = true;
  return call;
}

SessionOptions options_of(std::optional<LaneId> lane) {
  SessionOptions out;
  out.lane = lane;
  out.cpu.threads = 2;
  return out;
}

using Floats = std::vector<float>;

// The outputs of both passes of one layer; the inputs are always the same.
std::vector<Floats> run(Prepared& ready) {
  constexpr size_t kSize = kHeads * kTokens * kDim;
  Floats q(kSize), k(kSize), v(kSize), dout(kSize);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (Floats* a : {&q, &k, &v, &dout}) {
    for (float& x : *a) x = normal(random);
  }
  Floats out(kSize, NAN), dq(kSize, NAN), dk(kSize, NAN), dv(kSize, NAN);
  Floats lse(kHeads * kTokens, NAN);
  const auto output = [](Floats& a) {
    return MutableTensorView::bhsd(a.data(), Dtype::f32, 1, kHeads, kTokens,
                                   kDim);
  };
  const auto input = [&](Floats& a) { return as_input(output(a)); };
  const auto saved =
      ready.forward({input(q), input(k), input(v), {}, output(out), lse});
  EXPECT_TRUE(saved.ok()) << saved.error().message;
  if (!saved) return {};
  const auto done = ready.backward(
      *saved, {input(dout), {}, output(dq), output(dk), output(dv), {}});
  EXPECT_TRUE(done.ok()) << done.error().message;
  return {out, lse, dq, dk, dv};
}

// Outputs of one session and one thread, which all others must equal.
std::vector<std::vector<Floats>> alone(std::optional<LaneId> lane) {
  std::vector<std::vector<Floats>> out;
  const auto session = Session::open(options_of(lane));
  EXPECT_TRUE(session.ok());
  for (int b = 0; b < kBatches; ++b) {
    auto ready = session->prepare(batch_of(b), call_of_tests());
    EXPECT_TRUE(ready.ok());
    out.push_back(run(*ready));
  }
  EXPECT_NE(out[0], out[1]);
  return out;
}

class SessionThreads : public ::testing::TestWithParam<std::optional<LaneId>> {
};
INSTANTIATE_TEST_SUITE_P(
    Each, SessionThreads,
    ::testing::Values(std::optional(LaneId::cpu),
                      std::optional(LaneId::reference),
                      std::optional<LaneId>()),  // the rules choose
    [](const auto& each) {
      return each.param ? std::string(to_string(*each.param))
                        : std::string("rules");
    });

TEST_P(SessionThreads, EachWithASessionOfItsOwn) {
  const auto due = alone(GetParam());
  on_threads([&](int t) {
    const auto session = Session::open(options_of(GetParam()));
    ASSERT_TRUE(session.ok());
    auto ready = session->prepare(batch_of(t), call_of_tests());
    ASSERT_TRUE(ready.ok()) << ready.error().message;
    for (int i = 0; i < kBatches; ++i) {
      const int b = (t + i) % kBatches;
      if (i > 0) {
        ASSERT_TRUE(ready->next(batch_of(b)).ok());
      }
      EXPECT_EQ(run(*ready), due[static_cast<size_t>(b)]) << b;
    }
  });
}

// All threads share the session and the batches, which are new.
TEST_P(SessionThreads, OneSessionForAll) {
  const auto due = alone(GetParam());
  std::vector<OwnedBatch> batches;
  for (int b = 0; b < kBatches; ++b) batches.push_back(batch_of(b));
  const auto session = Session::open(options_of(GetParam()));
  ASSERT_TRUE(session.ok());
  on_threads([&](int t) {
    for (int i = 0; i < kBatches; ++i) {
      const auto b = static_cast<size_t>((t / 2 + i) % kBatches);
      const auto choice = session->choose(batches[b], call_of_tests());
      ASSERT_TRUE(choice.ok()) << choice.error().message;
      auto ready = session->prepare(batches[b], call_of_tests());
      ASSERT_TRUE(ready.ok()) << ready.error().message;
      EXPECT_EQ(ready->choice().lane, choice->lane);
      EXPECT_EQ(run(*ready), due[b]) << b;
      EXPECT_EQ(run(*ready), due[b]) << b;
      EXPECT_EQ(ready->counters().forwards, 2);
      EXPECT_EQ(ready->counters().backwards, 2);
    }
  });
}

// One flag stops the calls of all threads, wherever each call is.
TEST_P(SessionThreads, OneFlagStopsThemAll) {
  constexpr size_t kSize = kHeads * kTokens * kDim;
  const OwnedBatch batch = batch_of(4);
  const auto session = Session::open(options_of(GetParam()));
  ASSERT_TRUE(session.ok());
  StopFlag stop;
  on_threads([&](int t) {
    auto ready = session->prepare(batch, call_of_tests());
    if (!ready) stop.stop();
    ASSERT_TRUE(ready.ok()) << ready.error().message;
    Floats q(kSize, 1), out(kSize), lse(kHeads * kTokens);
    const auto view = [](Floats& a) {
      return MutableTensorView::bhsd(a.data(), Dtype::f32, 1, kHeads, kTokens,
                                     kDim);
    };
    const TensorView in = as_input(view(q));
    for (int i = 0;; ++i) {
      if (t == 0 && i == 2) stop.stop();
      const auto ran = ready->forward({in, in, in, {}, view(out), lse}, &stop);
      if (ran.ok()) continue;
      EXPECT_EQ(ran.error().kind, ErrorKind::stopped) << ran.error().message;
      break;
    }
  });
  stop.reset();
  auto ready = session->prepare(batch, call_of_tests());
  ASSERT_TRUE(ready.ok());
  EXPECT_EQ(run(*ready), alone(GetParam())[4]);
}

}  // namespace
}  // namespace tessera::run
