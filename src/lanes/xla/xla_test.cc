// lanes/xla/xla_test.cc: programs compiled and run by real plugins, against the
// reference within the bounds of lanes/reference/bound.cc.
#include <gtest/gtest.h>

#include <cstdlib>
#include <limits>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lanes/xla/lane.h"
#include "plan/make_plan.h"
#include "tests/attention_case.h"
#include "tests/attention_choices.h"
#include "tests/attention_odd.h"
#include "tests/plugins.h"
#include "tests/random_case.h"
#include "tests/random_tree.h"

namespace tessera::xla {
namespace {

using testing::attention_choices;
using testing::AttentionArrays;
using testing::AttentionCase;
using testing::odd_numbers_fault;
using testing::plain_attention;
using testing::Wanted;
using testing::wanted;

constexpr XlaMethod kMethods[] = {XlaMethod::worklist, XlaMethod::chunked,
                                  XlaMethod::dense};
constexpr const char* kPlugins[] = {"xla_cpu_pjrt", "lammps_jax_pjrt_cpu"};

// One lane for each plugin and method, so that compiled programs are kept.
const Result<XlaLane>& lane_of(const std::string& plugin, XlaMethod method) {
  static auto& lanes =
      *new std::map<std::pair<std::string, XlaMethod>, Result<XlaLane>>;
  const auto key = std::pair(plugin, method);
  auto at = lanes.find(key);
  if (at == lanes.end()) {
    testing::look_in_venv();
    XlaOptions options;
    options.plugin = plugin;
    options.method = method;
    at = lanes.emplace(key, XlaLane::open(options)).first;
  }
  return at->second;
}

std::optional<std::string> xla_fault(const XlaLane& lane, XlaMethod method,
                                     AttentionArrays& arrays,
                                     const Wanted& want) {
  const AttentionCase& c = arrays.c;
  const auto plan = plan::make_plan(arrays.request, arrays.facts);
  if (!plan) return plan.error().message;
  const auto fail = [&](const std::string& text) {
    return std::string(to_string(method)) + ": " + text;
  };
  arrays.clear_outputs();
  const auto ran =
      lane.forward(*BorrowedBatch::make(arrays.request, arrays.facts), c.shape,
                   arrays.forward(c.lse));
  if (!ran) return fail(ran.error().message);
  const Worklist& w = plan->forward;
  const int64_t group = c.shape.heads / plan->heads;
  const int64_t all = w.lists * w.rows * w.columns * group;
  const int64_t active = static_cast<int64_t>(w.entries.size()) * group;
  const bool listed = method == XlaMethod::worklist;
  const auto counted = [&](const XlaRun& run) {
    return run.tiles_run == (listed ? active : all) &&
           run.tiles_run + run.tiles_skipped == all &&
           run.compiles + run.memory_hits + run.disk_hits == 1;
  };
  if (!counted(*ran)) return fail("the counts of forward are wrong");
  if (auto f = forward_fault(want, arrays.forward(c.lse))) return fail(*f);
  if (auto f = arrays.spilled()) return fail(*f);
  if (!c.lse) {
    const auto again =
        lane.forward(*BorrowedBatch::make(arrays.request, arrays.facts),
                     c.shape, arrays.forward(true));
    if (!again) return fail(again.error().message);
    if (again->memory_hits != 1) return fail("the program was not kept");
  }
  const auto back =
      lane.backward(*BorrowedBatch::make(arrays.request, arrays.facts), c.shape,
                    arrays.forward(true), arrays.gradients());
  if (!back) return fail(back.error().message);
  if (!counted(*back)) return fail("the counts of backward are wrong");
  if (auto f = backward_fault(c, want, arrays.gradients())) return fail(*f);
  if (auto f = arrays.spilled()) return fail(*f);
  return {};
}

std::optional<std::string> xla_fault(const std::string& plugin,
                                     const AttentionCase& c, XlaMethod method) {
  AttentionArrays arrays(c);
  const Wanted want = wanted(arrays, true);
  const Result<XlaLane>& lane = lane_of(plugin, method);
  return lane ? xla_fault(*lane, method, arrays, want) : lane.error().message;
}

// Runs for each plugin; skipped if the plugin is absent.
class Xla : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto& lane = lane_of(GetParam(), XlaMethod::worklist);
    if (!lane && lane.error().kind == ErrorKind::unavailable) {
      GTEST_SKIP() << lane.error().message;
    }
    ASSERT_TRUE(lane) << lane.error().message;
  }

  void expect_right(const AttentionCase& c,
                    XlaMethod method = XlaMethod::worklist) {
    const auto fault = xla_fault(GetParam(), c, method);
    EXPECT_FALSE(fault) << *fault << "\n" << describe(c);
  }
  // Runs the cases by every method, or a part of them if the run is a sample.
  void expect_right_by_every_method(const std::vector<AttentionCase>& cases) {
    const size_t all = cases.size() * std::size(kMethods);
    for (size_t i = 0; i < all; ++i) {
      if (!testing::takes_case(i, all)) continue;
      expect_right(cases[i / std::size(kMethods)],
                   kMethods[i % std::size(kMethods)]);
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Plugins, Xla, ::testing::ValuesIn(kPlugins));

// Compiling takes a second per program, so a run takes only some of the
// choices, each with one method. TESSERA_XLA_STRIDE=1 takes all.
TEST_P(Xla, ChoicesAreRight) {
  const uint64_t seed = testing::first_seed(1);
  const char* const asked = std::getenv("TESSERA_XLA_STRIDE");
  const size_t stride = asked ? std::strtoul(asked, nullptr, 10) : 31;
  ASSERT_GT(stride, 0U);
  const std::vector<AttentionCase> cases = attention_choices(seed);
  for (size_t i = stride * testing::first_case(cases.size() / stride);
       i < cases.size(); i += stride * testing::case_stride()) {
    const AttentionCase& c = cases[i];
    ASSERT_TRUE(well_formed(c.plan)) << describe(c);
    if (auto fault = xla_fault(GetParam(), c, kMethods[i % 3])) {
      ADD_FAILURE() << "case " << i << ", run again with TESSERA_SEED=" << seed
                    << "\n"
                    << *fault << "\n"
                    << describe(c);
    }
  }
}

TEST_P(Xla, WhatIsNotFiniteReachesItsLegalPairsOnly) {
  for (const XlaMethod method : {XlaMethod::worklist, XlaMethod::chunked}) {
    const Result<XlaLane>& lane = lane_of(GetParam(), method);
    const auto run = [&](AttentionArrays& arrays, const Wanted& want) {
      return xla_fault(*lane, method, arrays, want);
    };
    const Dtype dtype =
        method == XlaMethod::worklist ? Dtype::f32 : Dtype::bf16;
    const auto fault =
        odd_numbers_fault("!window(6, 6) & causal", dtype, run, true);
    EXPECT_FALSE(fault) << *fault;
  }
}

TEST_P(Xla, LargeLogitsStaySafe) {
  AttentionCase c = plain_attention("causal", 100, 140, 64);
  c.q_size = 1e4;
  c.sinks = true;
  expect_right(c);
  c.shape.softcap = 15;
  expect_right(c, XlaMethod::dense);
}

TEST_P(Xla, SinkLogitsOfAnySize) {
  AttentionCase c = plain_attention("documents", 70, 70, 16);
  c.plan.doc_ids = std::vector<int32_t>(70, 1);
  for (size_t i = 1; i < 70; i += 2) (*c.plan.doc_ids)[i] = -1;
  c.shape.heads = 8;
  c.sinks = c.dlse = true;
  c.sink_logits = testing::extreme_sinks();
  expect_right(c);
}

// Scores so large that the exp() of their rounding error alone overflows.
TEST_P(Xla, ImmenseLogitsHaveFiniteGradients) {
  AttentionCase c = plain_attention("causal", 7, 7, 8);
  c.shape = {6, 2, 8, 8, {}, 0};
  c.q_size = 1e18;
  expect_right(c);
}

// Plan heads that share K/V heads only in part: each unit is one head.
TEST_P(Xla, MasksAndKeysDivideTheHeadsDifferently) {
  AttentionCase c = plain_attention("causal", 70, 90, 16);
  c.plan.masks = {*parse_expr("causal"), *parse_expr("window(9, 3)"),
                  *parse_expr("chunk(16)")};
  c.shape = {6, 2, 16, 24, {}, 0};
  expect_right(c);
  expect_right(c, XlaMethod::dense);
}

TEST_P(Xla, RowsWithoutKeys) {
  AttentionCase c = plain_attention("documents", 130, 130, 16);
  std::vector<int32_t> ids(130, 0);
  for (size_t i = 0; i < 64; ++i) ids[i] = i % 2 == 0 ? -1 : 1;
  for (size_t i = 64; i < 80; ++i) ids[i] = -1;
  c.plan.doc_ids = ids;
  c.plan.tile = {16, 16};
  c.sinks = c.dlse = true;
  expect_right(c);
}

// ---- One program serves every batch of its contract. ----

// A lane of its own, so that its counts begin at 0.
XlaLane fresh_lane(const std::string& plugin, int64_t max_compiles = 0) {
  XlaOptions options;
  options.plugin = plugin;
  options.max_compiles = max_compiles;
  return std::move(*XlaLane::open(options));
}

// A batch of random documents and counts, whose windows are of one class.
AttentionCase ragged(std::mt19937_64& random, int64_t tokens) {
  AttentionCase c = plain_attention("full", tokens, tokens, 16);
  const auto left = 33 + static_cast<int64_t>(random() % 32);
  c.plan.masks = {causal() & window(left, -1) & documents()};
  c.plan.batch = 2;
  c.plan.tile = {32, 32};
  std::vector<int32_t> ids(static_cast<size_t>(2 * tokens));
  for (size_t i = 0, id = 0; i < ids.size(); ++i) {
    id += random() % 40 == 0 ? 1 : 0;
    ids[i] = static_cast<int32_t>(id);
  }
  c.plan.doc_ids = std::move(ids);
  c.plan.valid_tokens = {static_cast<int32_t>(random() % (tokens + 1)),
                         static_cast<int32_t>(tokens)};
  c.seed = random();
  return c;
}

TEST_P(Xla, AChangedBatchNeverCompiles) {
  const XlaLane lane = fresh_lane(GetParam(), 2);
  std::mt19937_64 random(testing::first_seed(1));
  int64_t compiles = 0, hits = 0;
  std::set<std::string> contracts;
  for (int batch = 0; batch < 12; ++batch) {
    // Both lengths are in one bucket.
    AttentionCase c = ragged(random, batch % 2 == 0 ? 128 : 100);
    AttentionArrays arrays(c);
    arrays.request.ceilings = {64, 8};
    const Wanted want = wanted(arrays, true);
    const Plan plan = *plan::make_plan(arrays.request, arrays.facts);
    for (const bool backward : {false, true}) {
      const auto ran =
          backward
              ? lane.backward(
                    *BorrowedBatch::make(arrays.request, arrays.facts), c.shape,
                    arrays.forward(true), arrays.gradients())
              : lane.forward(*BorrowedBatch::make(arrays.request, arrays.facts),
                             c.shape, arrays.forward(true));
      ASSERT_TRUE(ran) << ran.error().message;
      compiles += ran->compiles;
      hits += ran->memory_hits;
      contracts.insert(ran->contract.key);
    }
    EXPECT_EQ(forward_fault(want, arrays.forward(true)), std::nullopt);
    EXPECT_EQ(backward_fault(c, want, arrays.gradients()), std::nullopt);
  }
  EXPECT_EQ(compiles, 2);
  EXPECT_EQ(hits, 22);
  EXPECT_EQ(contracts.size(), 2U);

  // A third contract exceeds the lane's max_compiles.
  AttentionCase c = ragged(random, 200);
  AttentionArrays arrays(c);
  arrays.request.ceilings = {64, 8};
  const Plan plan = *plan::make_plan(arrays.request, arrays.facts);
  const auto more =
      lane.forward(*BorrowedBatch::make(arrays.request, arrays.facts), c.shape,
                   arrays.forward(true));
  ASSERT_FALSE(more);
  EXPECT_EQ(more.error().kind, ErrorKind::limit);
  EXPECT_NE(more.error().message.find("kv_len"), std::string::npos)
      << more.error().message;
}

// Trees in a batch of two rows, of which one is cut by its token count.
AttentionCase with_tree(std::mt19937_64& random, const char* mask,
                        int64_t q_len, int64_t kv_len) {
  AttentionCase c = plain_attention(mask, q_len, kv_len, 16);
  c.plan.batch = 2;
  c.plan.tile = {32, 32};
  c.plan.valid_tokens = {static_cast<int32_t>(random() % (kv_len + 1)),
                         static_cast<int32_t>(kv_len)};
  c.plan.tree_enter.emplace();
  c.plan.tree_leave.emplace();
  for (const int32_t valid : *c.plan.valid_tokens) {
    testing::append_random_tree(random, kv_len, valid, *c.plan.tree_enter,
                                *c.plan.tree_leave);
  }
  c.seed = random();
  return c;
}

TEST_P(Xla, TreesAreRightByEveryMethod) {
  std::mt19937_64 random(testing::first_seed(1));
  expect_right_by_every_method(
      {with_tree(random, "tree", 100, 100),
       with_tree(random, "tree & window(20, 0)", 7, 90),
       with_tree(random, "causal & !tree | sink(2)", 70, 100)});
}

// Two names with ids of their own; some tokens are in no group.
TEST_P(Xla, NamedIdsAreRightByEveryMethod) {
  std::mt19937_64 random(testing::first_seed(1));
  const auto with_ids = [&](const char* mask, int64_t q_len, int64_t kv_len) {
    AttentionCase c = plain_attention(mask, q_len, kv_len, 16);
    c.plan.batch = 2;
    c.plan.tile = {32, 32};
    c.plan.valid_tokens = {static_cast<int32_t>(random() % (kv_len + 1)),
                           static_cast<int32_t>(kv_len)};
    for (auto* ids : {&c.plan.same_a, &c.plan.same_b}) {
      ids->emplace();
      for (int64_t i = 0; i < 2 * kv_len; ++i) {
        const bool goes_on = i % kv_len > 0 && random() % 5 != 0;
        (*ids)->push_back(goes_on ? (*ids)->back()
                                  : static_cast<int32_t>(random() % 6) - 3);
      }
    }
    c.seed = random();
    return c;
  };
  expect_right_by_every_method(
      {with_ids("causal | same(a)", 100, 100),
       with_ids("same(b) & window(20, 0)", 7, 90),
       with_ids("causal & !same(a) | same(b)", 70, 100)});
}

TEST_P(Xla, AChangedTreeNeverCompiles) {
  const XlaLane lane = fresh_lane(GetParam(), 2);
  std::mt19937_64 random(testing::first_seed(1));
  int64_t compiles = 0;
  for (int batch = 0; batch < 8; ++batch) {
    const int64_t tokens = batch % 2 == 0 ? 128 : 100;
    AttentionCase c = with_tree(random, "tree", tokens, tokens);
    AttentionArrays arrays(c);
    arrays.request.ceilings = {64, 8};
    const Wanted want = wanted(arrays, true);
    const auto planned = BorrowedBatch::make(arrays.request, arrays.facts);
    ASSERT_TRUE(planned) << planned.error().message;
    const auto ran = lane.forward(*planned, c.shape, arrays.forward(true));
    ASSERT_TRUE(ran) << ran.error().message;
    const auto back = lane.backward(*planned, c.shape, arrays.forward(true),
                                    arrays.gradients());
    ASSERT_TRUE(back) << back.error().message;
    compiles += ran->compiles + back->compiles;
    EXPECT_EQ(forward_fault(want, arrays.forward(true)), std::nullopt);
    EXPECT_EQ(backward_fault(c, want, arrays.gradients()), std::nullopt);
  }
  EXPECT_EQ(compiles, 2);
}

// The same number of steps over a wider grid needs no new program, since the
// program only walks a list.
TEST_P(Xla, AWiderGridNeverCompiles) {
  const XlaLane lane = fresh_lane(GetParam(), 1);
  AttentionCase c = plain_attention("causal & documents", 256, 256, 16);
  c.plan.tile = {32, 32};
  std::set<std::string> plans, kernels;
  int64_t compiles = 0;
  // 4 x 3 steps, and 6 + 3 + 3.
  const std::vector<std::vector<int64_t>> lengths = {{64, 64, 64, 64},
                                                     {96, 64, 32, 32, 32}};
  for (const auto& documents : lengths) {
    std::vector<int32_t>& ids = c.plan.doc_ids.emplace();
    for (size_t d = 0; d < documents.size(); ++d) {
      ids.insert(ids.end(), static_cast<size_t>(documents[d]),
                 static_cast<int32_t>(d));
    }
    AttentionArrays arrays(c);
    const auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
    ASSERT_TRUE(batch) << batch.error().message;
    const auto contract = make_contract(*batch);
    ASSERT_TRUE(contract) << contract.error().message;
    plans.insert(contract->key);
    EXPECT_EQ(contract->steps, 12);
    const auto ran = lane.forward(*batch, c.shape, arrays.forward(true));
    ASSERT_TRUE(ran) << ran.error().message;
    compiles += ran->compiles;
    kernels.insert(ran->contract.key);
    EXPECT_EQ(forward_fault(wanted(arrays, true), arrays.forward(true)),
              std::nullopt);
  }
  EXPECT_EQ(plans.size(), 2U);
  EXPECT_EQ(kernels.size(), 1U);
  EXPECT_EQ(compiles, 1);
}

TEST_P(Xla, WarmingCompilesWhatABatchNeeds) {
  const XlaLane lane = fresh_lane(GetParam());
  std::mt19937_64 random(1);
  AttentionCase c = ragged(random, 128);
  AttentionArrays arrays(c);
  AttentionCall call;
  call.shape = c.shape;
  const auto refused = lane.warm(arrays.request, arrays.facts, call);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message,
            "[xla] to compile before the batch is known, max_steps must be "
            "set, found 0");
  arrays.request.ceilings = {64, 0};
  const auto warm = lane.warm(arrays.request, arrays.facts, call);
  ASSERT_TRUE(warm) << warm.error().message;
  EXPECT_EQ(warm->compiles, 1);
  const auto ran =
      lane.forward(*BorrowedBatch::make(arrays.request, arrays.facts), c.shape,
                   arrays.forward(true));
  ASSERT_TRUE(ran) << ran.error().message;
  EXPECT_EQ(ran->compiles, 0);
  EXPECT_EQ(ran->memory_hits, 1);
  EXPECT_EQ(ran->contract.key, warm->contract.key);
}

// ---- Calls refused before any work, so no output changes by a bit. ----

TEST_P(Xla, RefusesWhatDoesNotFit) {
  const XlaLane lane = fresh_lane(GetParam());
  AttentionCase c = plain_attention("causal", 20, 30, 16);
  AttentionArrays arrays(c);
  const Plan plan = *plan::make_plan(arrays.request, arrays.facts);
  const std::vector<uint8_t> before = arrays.bits();
  const auto expect_refused = [&](const Request& request, const Facts& facts,
                                  const AttentionShape& shape,
                                  const std::string& text) {
    const auto forward = lane.forward(*BorrowedBatch::make(request, facts),
                                      shape, arrays.forward(true));
    const auto backward =
        lane.backward(*BorrowedBatch::make(request, facts), shape,
                      arrays.forward(true), arrays.gradients());
    for (const auto* ran : {&forward, &backward}) {
      ASSERT_FALSE(*ran);
      EXPECT_NE(ran->error().message.find(text), std::string::npos)
          << ran->error().message;
      EXPECT_NE(ran->error().message.find(", found "), std::string::npos);
    }
    EXPECT_EQ(arrays.bits(), before);
  };
  AttentionShape shape = c.shape;
  shape.head_dim = 12;
  expect_refused(arrays.request, arrays.facts, shape, "[xla] ");
  shape = c.shape;
  shape.scale = std::numeric_limits<double>::quiet_NaN();
  expect_refused(arrays.request, arrays.facts, shape, "[xla] ");
  const std::vector<int32_t> far = {1 << 30};
  Facts facts = arrays.facts;
  facts.q_offsets = far;
  expect_refused(arrays.request, facts, c.shape,
                 "[xla] positions must be within +-1073741824");
  AttentionCase wide = plain_attention("causal", 200, 200, 16);
  AttentionArrays big(wide);
  big.request.ceilings.max_steps = 3;
  const auto over = lane.forward(*BorrowedBatch::make(big.request, big.facts),
                                 wide.shape, big.forward(true));
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error().message,
            "[contract] steps must be at most max_steps 3, found 10");
}

TEST(XlaOpen, SaysWhatIsMissing) {
  TESSERA_NEEDS_PLUGINS();
  XlaOptions options;
  options.plugin = "/nowhere/plugin.so";
  const auto absent = XlaLane::open(options);
  ASSERT_FALSE(absent);
  EXPECT_NE(absent.error().message.find("/nowhere/plugin.so"),
            std::string::npos)
      << absent.error().message;
  options.plugin = "no_such_plugin";
  EXPECT_FALSE(XlaLane::open(options));
  options.client_options = {"cpu_device_count"};
  const auto malformed = XlaLane::open(options);
  ASSERT_FALSE(malformed);
  EXPECT_EQ(malformed.error().message,
            "[xla] a client option must read as name=value, found "
            "'cpu_device_count'");
}

// Results are written into the caller's arrays, so the sizes that a plugin
// reports are checked.
TEST(XlaOpen, TakesNoOutputOfAnotherSize) {
  const AttentionCase c = plain_attention("causal", 16, 16, 8);
  AttentionArrays arrays(c);
  arrays.request.tile = {16, 16};
  const Plan plan = *plan::make_plan(arrays.request, arrays.facts);
  for (const auto& [plugin, message] :
       {std::pair("faulty", "[xla] a program must give 3 arrays, found 2"),
        {"other_outputs",
         "[xla] a program must give F32 [1, 2, 16, 8], found F32 [1, 1, 1000, "
         "8] for output 0"}}) {
    XlaOptions options;
    options.plugin = testing::fake_plugin(plugin);
    const auto lane = XlaLane::open(options);
    if (testing::is_absent(lane)) GTEST_SKIP() << lane.error().message;
    ASSERT_TRUE(lane) << lane.error().message;
    const auto ran =
        lane->forward(*BorrowedBatch::make(arrays.request, arrays.facts),
                      c.shape, arrays.forward(true));
    ASSERT_FALSE(ran);
    EXPECT_EQ(ran.error().message, message);
  }
}

TEST_P(Xla, HasTheDevicesOfThePlugin) {
  XlaOptions options;
  options.plugin = GetParam();
  options.device = 1000;
  const auto none = XlaLane::open(options);
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("1000"), std::string::npos)
      << none.error().message;
  options.client_options = {"cpu_device_count=6"};
  options.device = 5;
  const auto sixth = XlaLane::open(options);
  ASSERT_TRUE(sixth) << sixth.error().message;
  options.device = 6;
  EXPECT_FALSE(XlaLane::open(options));
  const XlaLane lane = fresh_lane(GetParam());
  EXPECT_EQ(lane.place().platform, "cpu");
  EXPECT_TRUE(lane.place().api.starts_with("0.")) << lane.place().api;
}

}  // namespace
}  // namespace tessera::xla
