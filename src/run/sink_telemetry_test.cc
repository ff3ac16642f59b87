// run/sink_telemetry_test.cc: tests sink telemetry through a session: by
// document, without a change of forward's outputs, and its refusals.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <optional>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "lanes/bytes.h"
#include "lanes/reference/sink_row.h"
#include "tessera/session.h"
#include "tests/attention_case.h"

namespace tessera::run {
namespace {

constexpr int64_t kBatch = 2, kTokens = 70, kHeads = 4, kKvHeads = 2, kDim = 16;

// Documents 7, 9, 7, then padding; the second row has document 7 alone.
OwnedFacts packed() {
  OwnedFacts facts;
  facts.doc_ids.emplace();
  for (int64_t b = 0; b < kBatch; ++b) {
    for (int64_t t = 0; t < kTokens; ++t) {
      const int32_t id = t < 20   ? 7
                         : t < 45 ? 9 - 2 * static_cast<int32_t>(b)
                         : t < 64 ? 7
                                  : -1;
      facts.doc_ids->push_back(id);
    }
  }
  return facts;
}

Request request_of(std::vector<const char*> masks) {
  Request r;
  for (const char* mask : masks) r.masks.push_back(*parse_mask(mask));
  r.batch = kBatch;
  r.q_len = r.kv_len = kTokens;
  r.tile = {16, 16};
  return r;
}

OwnedBatch batch_of(std::vector<const char*> masks) {
  return *OwnedBatch::make(request_of(std::move(masks)), packed());
}

AttentionCall asked(bool telemetry = true) {
  AttentionCall call;
  call.shape = {kHeads, kKvHeads, kDim, kDim, {}, 0};
  call.sink_telemetry = telemetry;
  return call;
}

struct Arrays {
  std::vector<float> q, k, v, out, lse;
  Arrays() {
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& a, int64_t heads) {
      a.resize(static_cast<size_t>(kBatch * heads * kTokens * kDim));
      for (float& x : a) x = normal(random);
    };
    fill(q, kHeads);
    fill(k, kKvHeads);
    fill(v, kKvHeads);
    out.assign(q.size(), NAN);
    lse.assign(q.size() / kDim, NAN);
  }
  ForwardTensors tensors() {
    const auto view = [](const std::vector<float>& a, int64_t heads) {
      return TensorView::bhsd(a.data(), Dtype::f32, kBatch, heads, kTokens,
                              kDim);
    };
    ForwardTensors t;
    t.q = view(q, kHeads);
    t.k = view(k, kKvHeads);
    t.v = view(v, kKvHeads);
    t.out = MutableTensorView::bhsd(out.data(), Dtype::f32, kBatch, kHeads,
                                    kTokens, kDim);
    t.lse = lse;
    return t;
  }
};

Session open(LaneId lane) {
  SessionOptions options;
  options.lane = lane;
  return *Session::open(std::move(options));
}

template <class T>
std::string message(const Result<T>& r) {
  return r ? "" : r.error().message;
}

struct Sums {
  int64_t queries = 0;
  double mass = 0, entropy = 0;
};
using Key = std::tuple<int64_t, std::optional<int32_t>, int64_t>;

// Sums by (batch row, document, head), from the numbers of each query.
std::map<Key, Sums> sums_of(const SinkTelemetry& told, const Request& request,
                            const OwnedFacts& facts, bool segments,
                            bool named) {
  const Facts view = facts.view();
  const auto legality = Legality::bind(request, view);
  const auto numbers = segments_from_ids(*view.doc_ids, kBatch);
  std::map<Key, Sums> out;
  for (int64_t b = 0; b < kBatch; ++b) {
    for (int64_t h = 0; h < kHeads; ++h) {
      for (int64_t q = 0; q < kTokens; ++q) {
        bool live = false;
        for (int64_t k = 0; k < kTokens; ++k) {
          live |= legality->legal(b, h / (kHeads / legality->heads()), q, k);
        }
        if (!live) continue;
        const auto at = static_cast<size_t>(b * kTokens + q);
        std::optional<int32_t> document;
        if (named) document = segments ? (*numbers)[at] : (*view.doc_ids)[at];
        Sums& s = out[{b, document, h}];
        const auto i = static_cast<size_t>((b * kHeads + h) * kTokens + q);
        ++s.queries;
        s.mass += told.mass[i];
        s.entropy += told.entropy[i];
      }
    }
  }
  return out;
}

TEST(SinkTelemetry, IsByDocumentBySegmentOrByRow) {
  struct Case {
    std::vector<const char*> masks;
    bool segments, named;
    size_t documents;
  };
  for (const Case& c : {
           Case{{"causal & documents"}, false, true, 3},
           Case{{"causal & segments"}, true, true, 4},
           Case{{"causal & window(9, 0)"}, false, false, 2},
           Case{{"causal & documents", "!causal & documents"}, false, true, 3},
       }) {
    for (const LaneId lane : {LaneId::cpu, LaneId::reference}) {
      const OwnedBatch batch = batch_of(c.masks);
      const Session session = open(lane);
      auto ready = session.prepare(batch, asked());
      ASSERT_TRUE(ready.ok()) << message(ready);
      Arrays arrays;
      const auto saved = ready->forward(arrays.tensors());
      ASSERT_TRUE(saved.ok()) << message(saved);
      const auto told = ready->sink_telemetry(*saved, 3);
      ASSERT_TRUE(told.ok()) << message(told);
      EXPECT_EQ(told->first_keys, 3);
      EXPECT_EQ(told->documents.size(), c.documents) << c.masks[0];
      std::map<Key, Sums> due =
          sums_of(*told, request_of(c.masks), packed(), c.segments, c.named);
      for (const SinkTelemetry::Document& d : told->documents) {
        ASSERT_EQ(d.mass.size(), static_cast<size_t>(kHeads));
        for (int64_t h = 0; h < kHeads; ++h) {
          const auto i = static_cast<size_t>(h);
          const Key key{d.batch_row, d.document, h};
          const Sums s = due[key];
          EXPECT_EQ(d.queries[i], s.queries);
          const auto n = static_cast<double>(std::max<int64_t>(1, s.queries));
          EXPECT_EQ(d.mass[i], s.mass / n);
          EXPECT_EQ(d.entropy[i], s.entropy / n);
          due.erase(key);
        }
      }
      EXPECT_TRUE(due.empty());
    }
  }
}

TEST(SinkTelemetry, LanesAreRightAndForwardIsUntouched) {
  const OwnedBatch batch = batch_of({"causal & documents"});
  std::vector<SinkTelemetry> told;
  for (const LaneId lane : {LaneId::reference, LaneId::cpu}) {
    const Session session = open(lane);
    Arrays off, on;
    auto without = session.prepare(batch, asked(false));
    ASSERT_TRUE(without->forward(off.tensors()).ok());
    auto with = session.prepare(batch, asked());
    for (const int64_t first : {2, 3}) {
      const auto saved = with->forward(on.tensors());
      const auto got = with->sink_telemetry(*saved, first);
      ASSERT_TRUE(got.ok()) << message(got);
      EXPECT_EQ(on.out, off.out);
      EXPECT_EQ(on.lse, off.lse);
      if (first == 3) told.push_back(*got);
    }
  }
  Arrays arrays;
  const auto want =
      reference::sink_rows(batch, asked().shape, arrays.tensors(), 3);
  ASSERT_TRUE(want.ok()) << message(want);
  std::vector<reference::Expected> mass, entropy;
  for (const reference::SinkRow& row : *want) {
    mass.push_back(row.mass);
    entropy.push_back(row.entropy);
  }
  for (const SinkTelemetry& lane : told) {
    for (auto fault :
         {testing::values_fault("mass", mass, lane.mass),
          testing::values_fault("entropy", entropy, lane.entropy)}) {
      EXPECT_FALSE(fault) << *fault;
    }
  }
}

TEST(SinkTelemetry, MemoryIsCountedBefore) {
  double free = 0;
  SessionOptions options;
  options.lane = LaneId::cpu;
  options.memory = [&] { return free; };
  const Session session = *Session::open(options);
  const OwnedBatch batch = batch_of({"causal & documents"});
  EXPECT_TRUE(session.prepare(batch, asked(false)).ok());
  const double numbers =
      lanes::lane_bytes(LaneId::cpu, batch.request(), asked());
  EXPECT_GT(numbers, 0);
  const double planned = lanes::sink_batch_bytes(LaneId::cpu, batch, asked());
  EXPECT_EQ(lanes::sink_batch_bytes(LaneId::xla, batch, asked()), 0);
  free = numbers + planned - 1;
  EXPECT_TRUE(message(session.prepare(batch, asked()))
                  .starts_with("[run] the arrays must fit the memory that is "
                               "free, found "));
  free = numbers + planned;
  EXPECT_TRUE(session.prepare(batch, asked()).ok());

  OwnedFacts facts;
  facts.picks.emplace(kBatch * kTokens * 40, -1);
  facts.picks_k = 40;
  const auto picked =
      OwnedBatch::make(request_of({"blocks(16)"}), std::move(facts));
  ASSERT_TRUE(picked.ok()) << message(picked);
  EXPECT_GE(lanes::sink_batch_bytes(LaneId::cpu, *picked, asked()),
            kBatch * kTokens * 40 * 4);
}

TEST(SinkTelemetry, IsRefusedByName) {
  const OwnedBatch batch = batch_of({"causal & documents"});
  const Session session = open(LaneId::cpu);
  Arrays arrays;
  auto plain = session.prepare(batch, asked(false));
  const auto saved = plain->forward(arrays.tensors());
  EXPECT_EQ(message(plain->sink_telemetry(*saved, 3)),
            "[run] a call must say sink_telemetry when it is prepared, found "
            "one that does not");
  auto ready = session.prepare(batch, asked());
  EXPECT_EQ(message(ready->sink_telemetry(*saved, 3)),
            "[run] sink telemetry must be handed what this batch's forward "
            "pass gave, found another's");
  const auto own = ready->forward(arrays.tensors());
  for (const int64_t n : {int64_t{0}, int64_t{-1}, kMaxTokens + 1}) {
    EXPECT_EQ(
        message(ready->sink_telemetry(*own, n)),
        fmt::format("[run] first_keys must be 1 to 1073741824, found {}", n));
  }
  const auto told = ready->sink_telemetry(*own, 3);
  EXPECT_EQ(message(ready->receipt(*own)),
            "[receipt] sink telemetry must be given for a call with "
            "sink_telemetry, and for no other, found none");
  EXPECT_EQ(message(plain->receipt(*saved, nullptr, &*told)),
            "[receipt] sink telemetry must be given for a call with "
            "sink_telemetry, and for no other, found some");
  EXPECT_EQ(message(ready->receipt(*own, nullptr, &*told)), "");
  SinkTelemetry other = *told;
  other.mass.pop_back();
  EXPECT_EQ(message(ready->receipt(*own, nullptr, &other)),
            "[receipt] sink telemetry must be of this batch's 560 queries of "
            "all heads, found 559 and 560");
  other = *told;
  other.documents.resize(30000);
  EXPECT_EQ(message(ready->receipt(*own, nullptr, &other)),
            "[receipt] sink telemetry of 4 heads must be of at most 21845 "
            "documents, found 30000");
  StopFlag stop;
  stop.stop();
  const auto stopped = ready->sink_telemetry(*own, 3, &stop);
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().kind, ErrorKind::stopped);

  const RequestFeatures features =
      features_of(batch.request(), batch.facts(), asked().shape,
                  {.dtype = Dtype::bf16,
                   .bridge_artifact = true,
                   .sink_telemetry = true,
                   .artifact_platforms = {"tpu"}});
  Machine machine;
  machine.isas = machine_isas();
  machine.plugins = {{"libtpu", "tpu", 1}, {"cpu", "cpu", 1}};
  const auto forced = choose(features, plan_facts(batch.plan()), machine, {},
                             LaneId::jax_bridge);
  EXPECT_EQ(message(forced),
            "[dispatch] the lane that was asked for must be able to run this, "
            "found jax_bridge: it has no sink telemetry");
  // Without a named lane the rules find one that has telemetry.
  const auto choice = choose(features, plan_facts(batch.plan()), machine, {});
  ASSERT_TRUE(choice.ok());
  EXPECT_EQ(choice->lane, LaneId::xla);
}

}  // namespace
}  // namespace tessera::run
