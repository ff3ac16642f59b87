// run/warm_test.cc: tests which calls a warm list keeps and prepares.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lanes/lane.h"
#include "run/session_state.h"
#include "tessera/session.h"
#include "tests/idle_work.h"

namespace tessera::run {
namespace {

// What was prepared, such as "xla worklist"; written from several threads.
std::mutex mutex;
std::vector<std::string> prepared;

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
  const auto warmed = warm_all(*session, list);
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
  ASSERT_TRUE(warm_all(*session, list).ok());
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
  ASSERT_TRUE(warm_all(*session, list).ok());
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

}  // namespace
}  // namespace tessera::run
