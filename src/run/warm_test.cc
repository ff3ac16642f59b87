// run/warm_test.cc: tests which calls a warm list keeps and prepares.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/fail.h"
#include "lanes/lane.h"
#include "run/session_state.h"
#include "tessera/session.h"
#include "tests/idle_work.h"

namespace tessera::run {
namespace {

// What was prepared, such as "xla worklist"; written from several threads.
std::mutex mutex;
std::vector<std::string> prepared;

constexpr int64_t kTooLong = 4096;  // a request that no lane here compiles

class NamedLane : public lanes::OpenLane {
 public:
  explicit NamedLane(std::string name) : name_(std::move(name)) {}
  Result<std::unique_ptr<lanes::LaneWork>> prepare(
      const Batch&, const AttentionCall&,
      std::unique_ptr<lanes::LaneWork>) override {
    const std::lock_guard lock(mutex);
    prepared.push_back(name_);
    return testing::idle_work();
  }
  Result<lanes::WorkFacts> warm(const Request& request, const Facts&,
                                const AttentionCall&) override {
    if (request.q_len == kTooLong) {
      return over_limit("cache", "compiles must be at most 2, found one more");
    }
    const std::lock_guard lock(mutex);
    prepared.push_back(fmt::format("{} q_len {}", name_, request.q_len));
    lanes::WorkFacts out;
    out.compiles = 1;
    out.compile_ms = 2;
    out.warnings = {"a full disk"};
    return out;
  }
  double bytes(const Request&, const AttentionCall&) const override {
    return 0;
  }

 private:
  std::string name_;
};

template <LaneId lane>
Result<std::unique_ptr<lanes::OpenLane>> open_named(
    const lanes::LaneOptions& options) {
  std::string name(to_string(lane));
  if (lane == LaneId::xla) {
    name += " " + std::string(to_string(options.xla.method));
  }
  return std::unique_ptr<lanes::OpenLane>(
      std::make_unique<NamedLane>(std::move(name)));
}

constexpr lanes::Lane kLanes[] = {{LaneId::cpu, open_named<LaneId::cpu>},
                                  {LaneId::xla, open_named<LaneId::xla>},
                                  {LaneId::mosaic, open_named<LaneId::mosaic>}};

constexpr int64_t kTokens = 8192;

// Packed documents; each token also sees all of its own document.
OwnedBatch packed(const std::vector<int32_t>& lengths) {
  Request request;
  request.masks = {*parse_mask("causal | documents")};
  request.q_len = request.kv_len = kTokens;
  request.tile = {256, 256};
  OwnedFacts facts;
  facts.doc_ids.emplace();
  for (size_t i = 0; i < lengths.size(); ++i) {
    facts.doc_ids->insert(facts.doc_ids->end(), static_cast<size_t>(lengths[i]),
                          static_cast<int32_t>(i));
  }
  return *OwnedBatch::make(request, std::move(facts));
}

AttentionCall call_of_tests() {
  AttentionCall call;
  call.shape = {8, 8, 128, 128, {}, 0};
  call.dtype = Dtype::bf16;
  return call;
}

SessionOptions on_a_tpu() {
  SessionOptions out;
  out.machine = Machine{"A CPU", 8,    {Isa::portable},
                        true,    true, {{"libtpu", "tpu", 1, "v6e"}}};
  return out;
}

// One document skips no tile and goes to the compiler's program; two skip tiles
// and go to our kernel. Both batches have one contract.
TEST(WarmList, KeepsOneBatchOfEachChoice) {
  const OwnedBatch one = packed({8192});
  const OwnedBatch two = packed({7168, 1024});
  const OwnedBatch like_two = packed({7424, 768});
  const AttentionCall call = call_of_tests();
  ASSERT_EQ(make_contract(one)->key, make_contract(two)->key);
  ASSERT_EQ(make_contract(two)->key, make_contract(like_two)->key);

  prepared.clear();
  const auto session = open_session(on_a_tpu(), kLanes);
  ASSERT_TRUE(session.ok()) << session.error().message;
  EXPECT_EQ(session->choose(one, call)->lane, LaneId::xla);
  EXPECT_EQ(session->choose(one, call)->method, XlaMethod::worklist);
  EXPECT_EQ(session->choose(two, call)->lane, LaneId::mosaic);
  WarmList list;
  EXPECT_TRUE(*add_call(list, *session, one, call));
  EXPECT_TRUE(*add_call(list, *session, two, call));
  EXPECT_FALSE(*add_call(list, *session, like_two, call));
  EXPECT_FALSE(*add_call(list, *session, one, call));
  EXPECT_EQ(list.seen, 4);
  const auto warmed = session->warm(list);
  ASSERT_TRUE(warmed.ok()) << warmed.error().message;
  EXPECT_EQ(warmed->batches, 4);
  EXPECT_EQ(warmed->contracts, 2);
  std::ranges::sort(prepared);
  EXPECT_EQ(prepared, (std::vector<std::string>{"mosaic", "xla worklist"}));
}

// A named lane runs all batches of a contract with one program.
TEST(WarmList, ANamedLaneNeedsOneOfAContract) {
  prepared.clear();
  SessionOptions options = on_a_tpu();
  options.lane = LaneId::mosaic;
  const auto session = open_session(options, kLanes);
  ASSERT_TRUE(session.ok()) << session.error().message;
  WarmList list;
  EXPECT_TRUE(*add_call(list, *session, packed({8192}), call_of_tests()));
  EXPECT_FALSE(
      *add_call(list, *session, packed({7168, 1024}), call_of_tests()));
  ASSERT_TRUE(session->warm(list).ok());
  EXPECT_EQ(prepared, std::vector<std::string>{"mosaic"});
}

// A given choice is what is prepared: the rules, which would choose the
// compiler's program, are not asked again.
TEST(WarmList, AChoiceThatWasMadeStands) {
  const OwnedBatch one = packed({8192});
  const AttentionCall call = call_of_tests();
  prepared.clear();
  const auto session = open_session(on_a_tpu(), kLanes);
  ASSERT_TRUE(session.ok()) << session.error().message;
  const auto chosen = session->choose(packed({7168, 1024}), call);
  ASSERT_TRUE(chosen.ok()) << chosen.error().message;
  ASSERT_EQ(chosen->lane, LaneId::mosaic);
  WarmList list;
  EXPECT_TRUE(*add_call(list, *session, one, call, *chosen));
  EXPECT_TRUE(*add_call(list, *session, one, call));  // the rules' own
  EXPECT_EQ(list.calls.size(), 2U);
  ASSERT_TRUE(session->warm(list).ok());
  std::ranges::sort(prepared);
  EXPECT_EQ(prepared, (std::vector<std::string>{"mosaic", "xla worklist"}));
  EXPECT_EQ(session->prepare(one, call, *chosen)->lane(), LaneId::mosaic);
  EXPECT_EQ(session->prepare(one, call)->lane(), LaneId::xla);
}

// A call that no lane can run is an error when it is added.
TEST(WarmList, WhatNobodyRunsIsRefused) {
  const auto session = open_session(on_a_tpu(), kLanes);
  ASSERT_TRUE(session.ok()) << session.error().message;
  AttentionCall odd = call_of_tests();
  odd.shape = {8, 8, 100, 100, {}, 0};
  WarmList list;
  const auto added = add_call(list, *session, packed({8192}), odd);
  ASSERT_FALSE(added.ok());
  EXPECT_EQ(added.error().kind, ErrorKind::unavailable);
  AttentionCall alone = call_of_tests();
  alone.dlse = true;
  const auto refused = add_call(list, *session, packed({8192}), alone);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "[warm] dlse goes with backward, found it alone");
  EXPECT_EQ(list.seen, 0);
}

Request request_of(int64_t tokens) {
  Request out;
  out.masks = {*parse_mask("causal")};
  out.q_len = out.kv_len = tokens;
  out.tile = {256, 256};
  return out;
}

Session named(LaneId lane) {
  SessionOptions options = on_a_tpu();
  options.lane = lane;
  return std::move(open_session(std::move(options), kLanes).value());
}

// Lengths that are under the same ceilings share a program, as batches do; the
// list is warmed once for each contract, and tells after each.
TEST(WarmList, RequestsWithoutBatchesAreWarmedOnceForEachContract) {
  const AttentionCall call = call_of_tests();
  for (const int threads : {1, 3}) {
    const Session session = named(LaneId::mosaic);
    prepared.clear();
    WarmList list;
    for (const int64_t tokens : {512, 1024, 1000, 2048}) {
      EXPECT_EQ(*add_ceilings(list, session, request_of(tokens), {}, call),
                tokens != 1000)
          << tokens;
    }
    AttentionCall backward = call;
    backward.backward = true;
    EXPECT_TRUE(*add_ceilings(list, session, request_of(512), {}, backward));
    EXPECT_TRUE(*add_call(list, session, packed({8192}), call));
    EXPECT_EQ(list.seen, 6);
    std::vector<std::string> told;
    WarmOptions options;
    options.threads = threads;
    options.progress = [&](int64_t done, int64_t contracts) {
      told.push_back(fmt::format("{} of {}", done, contracts));
    };
    const auto warmed = session.warm(list, options);
    ASSERT_TRUE(warmed.ok()) << warmed.error().message;
    EXPECT_EQ(told, (std::vector<std::string>{"1 of 5", "2 of 5", "3 of 5",
                                              "4 of 5", "5 of 5"}));
    EXPECT_EQ(warmed->batches, 6);
    EXPECT_EQ(warmed->contracts, 5);
    EXPECT_EQ(warmed->compiles, 4);
    EXPECT_EQ(warmed->compile_ms, 8);
    EXPECT_EQ(warmed->warnings.size(), 4U);
    std::ranges::sort(prepared);
    EXPECT_EQ(prepared, (std::vector<std::string>{
                            "mosaic", "mosaic q_len 1024", "mosaic q_len 2048",
                            "mosaic q_len 512", "mosaic q_len 512"}));
  }
}

TEST(WarmList, AnErrorOrAStopEndsTheList) {
  const Session session = named(LaneId::mosaic);
  const AttentionCall call = call_of_tests();
  WarmList list;
  for (const int64_t tokens : {512, 1024}) {
    ASSERT_TRUE(*add_ceilings(list, session, request_of(tokens), {}, call));
  }
  int64_t told = 0;
  StopFlag stop;
  WarmOptions options;
  options.threads = 1;
  options.stop = &stop;
  options.progress = [&](int64_t done, int64_t) {
    told = done;
    stop.stop();
  };
  const auto stopped = session.warm(list, options);
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().kind, ErrorKind::stopped);
  EXPECT_EQ(told, 1);
  ASSERT_TRUE(*add_ceilings(list, session, request_of(kTooLong), {}, call));
  const auto over = session.warm(list);
  ASSERT_FALSE(over.ok());
  EXPECT_EQ(over.error().message,
            "[cache] compiles must be at most 2, found one more");
}

// A request alone says nothing of density, so the rules cannot choose for it.
TEST(WarmList, ARequestWithoutABatchNeedsANamedLane) {
  const auto session = open_session(on_a_tpu(), kLanes);
  ASSERT_TRUE(session.ok()) << session.error().message;
  WarmList list;
  const auto refused =
      add_ceilings(list, *session, request_of(512), {}, call_of_tests());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "[run] a session must be opened with a named lane to answer for "
            "that lane, found none");
  Request odd = request_of(512);
  odd.batch = 0;
  EXPECT_FALSE(
      add_ceilings(list, named(LaneId::mosaic), odd, {}, call_of_tests()).ok());
  EXPECT_EQ(list.seen, 0);
}

}  // namespace
}  // namespace tessera::run
