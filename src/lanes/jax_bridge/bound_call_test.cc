// lanes/jax_bridge/bound_call_test.cc: the tree, named ids and picks of each
// batch reach an artifact's program, or the call is refused with their name.
#include "lanes/jax_bridge/bound_call.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/files.h"
#include "lanes/jax_bridge/attention.h"
#include "lanes/reference/judge.h"
#include "tessera/session.h"
#include "tests/cpu_plugin.h"
#include "tests/random_tree.h"

namespace tessera::bridge {
namespace {

constexpr int64_t kBatch = 2, kHeads = 4, kKvHeads = 2, kDim = 8;
constexpr int64_t kQueries = 12, kKeys = 16, kBlock = 4, kPicks = 3;
constexpr char kMask[] = "(tree | same(b)) & blocks(4)";

// Made by tests/golden/make_bridge.py.
BridgeArtifact golden() {
  const std::string path = "tests/golden/bridge/roles";
  return {*read_file(path + ".mlirbc", 1 << 20),
          *parse_bridge_spec(*read_file(path + ".json", 1 << 20))};
}

std::vector<int32_t> draw(std::mt19937_64& random, int64_t count, int64_t least,
                          int64_t most) {
  std::vector<int32_t> out(static_cast<size_t>(count));
  for (int32_t& value : out) {
    value = static_cast<int32_t>(
        least + static_cast<int64_t>(random() %
                                     static_cast<uint64_t>(most - least + 1)));
  }
  return out;
}

// A batch that fits the artifact's declaration, with its arrays.
struct RolesBatch {
  Request request;
  OwnedFacts facts;
  AttentionShape shape{kHeads, kKvHeads, kDim, kDim, {}, 0};
  std::vector<float> q, k, v, out, lse;

  explicit RolesBatch(uint64_t seed) {
    request.masks = {*parse_mask(kMask)};
    request.batch = kBatch;
    request.q_len = kQueries;
    request.kv_len = kKeys;
    request.tile = {8, 8};
    std::mt19937_64 random(seed);
    facts.tree_enter.emplace();
    facts.tree_leave.emplace();
    for (int64_t b = 0; b < kBatch; ++b) {
      testing::append_random_tree(random, kKeys, kKeys, *facts.tree_enter,
                                  *facts.tree_leave);
    }
    facts.same_ids[1] = draw(random, kBatch * kKeys, -2, 2);
    facts.picks = draw(random, kBatch * kKvHeads * kQueries * kPicks, -1,
                       kKeys / kBlock - 1);
    std::fill_n(facts.picks->begin(), kPicks, -1);  // a query without a key
    facts.picks_heads = kKvHeads;
    facts.picks_k = kPicks;
    facts.q_offsets = draw(random, kBatch, 0, kKeys - kQueries);
    std::normal_distribution<float> normal;
    q.resize(kBatch * kHeads * kQueries * kDim);
    k.resize(kBatch * kKvHeads * kKeys * kDim);
    v.resize(k.size());
    out.resize(q.size());
    lse.resize(kBatch * kHeads * kQueries);
    for (std::vector<float>* array : {&q, &k, &v}) {
      for (float& x : *array) x = normal(random);
    }
  }

  ForwardTensors forward() {
    ForwardTensors t;
    t.q =
        TensorView::bhsd(q.data(), Dtype::f32, kBatch, kHeads, kQueries, kDim);
    t.k = TensorView::bhsd(k.data(), Dtype::f32, kBatch, kKvHeads, kKeys, kDim);
    t.v = TensorView::bhsd(v.data(), Dtype::f32, kBatch, kKvHeads, kKeys, kDim);
    t.out = MutableTensorView::bhsd(out.data(), Dtype::f32, kBatch, kHeads,
                                    kQueries, kDim);
    t.lse = lse;
    return t;
  }

  // Whether the output is that of the facts `of`.
  bool passes(const OwnedFacts& of) {
    reference::JudgeOptions options;
    options.flushes = true;
    const auto verdict = reference::judge_declared_forward(
        request, of.view(), shape, forward(), options);
    EXPECT_TRUE(verdict.ok()) << verdict.error().message;
    return verdict.ok() && verdict->passed();
  }
};

// Changes of facts. Each leaves a valid batch, but with other legal pairs.
const std::vector<std::function<void(OwnedFacts&)>>& changes() {
  static const auto& all = *new std::vector<std::function<void(OwnedFacts&)>>{
      [](OwnedFacts& f) {  // each token sees only itself
        std::ranges::transform(*f.tree_enter, f.tree_leave->begin(),
                               [](int32_t enter) { return enter + 1; });
      },
      [](OwnedFacts& f) {  // one chain
        for (size_t i = 0; i < f.tree_leave->size(); ++i) {
          const size_t last = i / kKeys * kKeys + kKeys - 1;
          (*f.tree_leave)[i] = (*f.tree_enter)[last] + 1;
        }
      },
      [](OwnedFacts& f) { f.same_ids[1]->assign(kBatch * kKeys, -1); },
      [](OwnedFacts& f) {
        for (int32_t& block : *f.picks) {
          if (block >= 0) block = (block + 1) % (kKeys / kBlock);
        }
      },
      [](OwnedFacts& f) {
        for (int32_t& offset : *f.q_offsets) {
          offset = (offset + 1) % (kKeys - kQueries + 1);
        }
      }};
  return all;
}

class BridgeRoles : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto plugin = testing::real_plugin(GetParam());
    if (testing::is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
  }
};
TESSERA_FOR_CPU_PLUGINS(BridgeRoles);

// One program serves all batches; its output is that of the batch's facts only.
TEST_P(BridgeRoles, TheFactsOfEachBatchReachTheProgram) {
  SessionOptions options;
  options.lane = LaneId::jax_bridge;
  options.xla.plugin = GetParam();
  options.artifact = golden();
  const auto session = Session::open(options);
  ASSERT_TRUE(session.ok()) << session.error().message;
  int64_t compiles = 0;
  std::vector<int> noticed(changes().size());
  for (uint64_t seed = 0; seed < 12; ++seed) {
    RolesBatch batch(seed);
    const auto made = OwnedBatch::make(batch.request, batch.facts);
    ASSERT_TRUE(made.ok()) << made.error().message;
    AttentionCall call;
    call.shape = batch.shape;
    auto ready = session->prepare(*made, call);
    ASSERT_TRUE(ready.ok()) << ready.error().message;
    const auto ran = ready->forward(batch.forward());
    ASSERT_TRUE(ran.ok()) << ran.error().message;
    compiles += ready->counters().compiles;
    EXPECT_TRUE(batch.passes(batch.facts)) << seed;
    for (size_t i = 0; i < noticed.size(); ++i) {
      OwnedFacts other = batch.facts;
      changes()[i](other);
      noticed[i] += batch.passes(other) ? 0 : 1;
    }
  }
  EXPECT_EQ(compiles, 1);
  for (size_t i = 0; i < noticed.size(); ++i) EXPECT_GT(noticed[i], 0) << i;
}

const int32_t* input_of(const BridgeSpec& spec,
                        const std::vector<const void*>& inputs,
                        std::string_view role) {
  const BridgeArray* array = find_role(spec, role);
  if (!array) return nullptr;
  return static_cast<const int32_t*>(
      inputs[static_cast<size_t>(array - spec.inputs.data())]);
}

TEST(BridgeBoundCall, FactsGoWhereTheirRolesAre) {
  const BridgeSpec spec = golden().spec;
  RolesBatch batch(1);
  batch.facts.q_offsets = {0, 4};
  auto bound =
      BoundCall::bind(spec, batch.request, batch.facts.view(), batch.shape);
  ASSERT_TRUE(bound.ok()) << bound.error().message;
  BoundCall moved = std::move(*bound);
  const auto arrays = moved.place(batch.forward());
  ASSERT_TRUE(arrays.ok()) << arrays.error().message;
  const auto input = [&](std::string_view role) {
    // A layer does not pass facts, since they are held on the device.
    EXPECT_EQ(input_of(spec, (*arrays)->inputs, role), nullptr) << role;
    return input_of(spec, moved.facts(), role);
  };
  const OwnedFacts& f = batch.facts;
  EXPECT_EQ(input("tree_enter"), f.tree_enter->data());
  EXPECT_EQ(input("tree_leave"), f.tree_leave->data());
  EXPECT_EQ(input("same_b"), f.same_ids[1]->data());
  EXPECT_EQ(input("picks"), f.picks->data());
  EXPECT_EQ(input("q_offsets"), f.q_offsets->data());
  const int32_t* const ids = input("q_same_b");
  ASSERT_NE(ids, nullptr);
  for (size_t i = 0; i < kQueries; ++i) {
    EXPECT_EQ(ids[i], (*f.same_ids[1])[i]);
    EXPECT_EQ(ids[kQueries + i], (*f.same_ids[1])[kKeys + 4 + i]);
  }
}

TEST(BridgeBoundCall, AQueryBesideTheKeysHasNoId) {
  Request request;
  request.batch = 2;
  request.q_len = 3;
  request.kv_len = 4;
  const std::vector<int32_t> ids = {10, 11, 12, 13, 20, 21, 22, 23};
  Facts facts;
  EXPECT_EQ(ids_of_queries(request, facts, ids),
            (std::vector<int32_t>{11, 12, 13, 21, 22, 23}));
  const std::vector<int32_t> offsets = {-1, 3};
  facts.q_offsets = offsets;
  EXPECT_EQ(ids_of_queries(request, facts, ids),
            (std::vector<int32_t>{-1, 10, 11, 23, -1, -1}));
}

// Each difference between a call and the artifact is refused by name.
TEST(BridgeBoundCall, OtherFactsAreRefused) {
  struct Given {
    BridgeSpec spec = golden().spec;
    RolesBatch batch{1};
  };
  const auto refused = [](const std::function<void(Given&)>& change) {
    Given given;
    change(given);
    const RolesBatch& b = given.batch;
    const auto bound =
        BoundCall::bind(given.spec, b.request, b.facts.view(), b.shape);
    return bound ? std::string("it bound") : bound.error().message;
  };
  const auto roles = [](Given & g) -> auto& { return g.spec.attention->roles; };
  const std::string mask = to_string(*parse_mask(kMask));
  const auto present = [](const std::string& role) {
    return "[bridge] " + role +
           " must be given, as the artifact has it, found none";
  };
  EXPECT_EQ(refused([](Given& g) { g.batch.facts.tree_enter.reset(); }),
            present("tree_enter"));
  EXPECT_EQ(refused([](Given& g) { g.batch.facts.tree_leave.reset(); }),
            present("tree_leave"));
  EXPECT_EQ(refused([](Given& g) { g.batch.facts.same_ids[1].reset(); }),
            present("same_b"));
  EXPECT_EQ(refused([](Given& g) { g.batch.facts.picks.reset(); }),
            present("picks"));
  EXPECT_EQ(refused([](Given& g) {
              g.batch.facts.same_ids[0] = g.batch.facts.same_ids[1];
            }),
            "[bridge] same_a must be absent, as the artifact has none, found "
            "some");
  EXPECT_EQ(refused([](Given& g) {
              g.batch.facts.valid_slot_counts = {4, 4};
            }),
            "[bridge] valid_slot_counts must be absent, as the artifact has "
            "none, found some");
  EXPECT_EQ(refused([](Given& g) { g.batch.facts.picks_heads = 1; }),
            "[bridge] pick heads must be the artifact's 2, found 1");
  EXPECT_EQ(refused([](Given& g) { g.batch.facts.picks_k = 4; }),
            "[bridge] picks of a query must be the artifact's 3, found 4");
  EXPECT_EQ(refused([](Given& g) {
              g.batch.request.masks.push_back(*parse_mask("causal"));
            }),
            "[bridge] the mask must be the artifact's " + mask + ", found " +
                mask + "; causal");
  EXPECT_EQ(refused([&](Given& g) { roles(g).erase("tree_leave"); }),
            "[bridge] attention must have the role tree_leave, found none for "
            "it");
  EXPECT_EQ(refused([&](Given& g) { roles(g).erase("q_same_b"); }),
            "[bridge] to run as attention, each input must have a role, found "
            "none for 'q_same_b'");
}

// An input with two roles is sent once.
TEST(BridgeBoundCall, RolesOfOneInputBringTheSame) {
  BridgeSpec spec = golden().spec;
  spec.attention->roles["doc_ids"] = "same_b";
  RolesBatch batch(1);
  batch.facts.doc_ids = batch.facts.same_ids[1];
  const auto bind = [&] {
    return BoundCall::bind(spec, batch.request, batch.facts.view(),
                           batch.shape);
  };
  EXPECT_TRUE(bind().ok()) << bind().error().message;
  ++batch.facts.doc_ids->back();
  ASSERT_FALSE(bind().ok());
  EXPECT_EQ(bind().error().message,
            "[bridge] roles of one input must bring the same, found other "
            "values for doc_ids and same_b");
}

// The same holds for a layer's arrays, which are sent in every call.
TEST(BridgeBoundCall, TensorsOfOneInputAreOneArray) {
  BridgeSpec spec = golden().spec;
  const auto v = find_role(spec, "v") - spec.inputs.data();
  spec.attention->roles["v"] = spec.attention->roles["k"];
  std::erase(spec.kept_inputs, v);
  RolesBatch batch(1);
  auto bound =
      BoundCall::bind(spec, batch.request, batch.facts.view(), batch.shape);
  ASSERT_TRUE(bound.ok()) << bound.error().message;
  ForwardTensors t = batch.forward();
  const auto two = bound->place(t);
  ASSERT_FALSE(two.ok());
  EXPECT_EQ(two.error().message,
            "[bridge] roles of one input must bring the same, found two arrays "
            "for k and v");
  t.v = t.k;
  const auto one = bound->place(t);
  ASSERT_TRUE(one.ok()) << one.error().message;
  const auto k = find_role(spec, "k") - spec.inputs.data();
  EXPECT_EQ((*one)->inputs[static_cast<size_t>(k)], batch.k.data());
}

}  // namespace
}  // namespace tessera::bridge
