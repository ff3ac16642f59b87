// lanes/xla/shard_lane_test.cc: random calls over random meshes of devices of
// real plugins, against the reference within the bounds of
// lanes/reference/bound.cc.
#include "lanes/xla/shard_lane.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "pjrt/compile.h"
#include "pjrt/topology.h"
#include "tessera/session.h"
#include "tessera/train.h"
#include "tests/attention_case.h"
#include "tests/cpu_exchange.h"
#include "tests/hold_for_all.h"
#include "tests/plugins.h"
#include "tests/resident_run.h"
#include "tests/tpu_meshes.h"

namespace tessera::xla {
namespace {

using testing::AttentionArrays;
using testing::AttentionCase;
using testing::Fault;

constexpr const char* kPlugins[] = {"xla_cpu_pjrt", "lammps_jax_pjrt_cpu"};
constexpr int64_t kDevices = 4;

lanes::LaneOptions options_for(const std::string& plugin) {
  testing::look_in_venv();
  lanes::LaneOptions out;
  out.xla.plugin = plugin;
  out.shards.uneven = true;
  return out;
}

// A mesh of two or four devices, of which some may be along "copy".
Mesh random_mesh(std::mt19937_64& random, bool heads_may_part) {
  Mesh out;
  out.axes = {{"data", 1}, {"head", 1}, {"seq", 1}, {"copy", 1}};
  for (uint64_t i = 0; i <= random() % 2; ++i) {
    size_t axis = random() % 6;
    // Half of the draws are for "seq".
    if (axis > 3 || (axis == 1 && !heads_may_part)) axis = 2;
    out.axes[axis].size *= 2;
  }
  std::shuffle(out.axes.begin(), out.axes.end(), random);
  for (MeshAxis& a : out.axes) {
    if (random() % 4 == 0) a = {"my_" + a.name, a.size, a.name};
  }
  return out;
}

AttentionCall call_of(const AttentionCase& c) {
  return {c.shape, c.dtype, c.sinks, true, c.dlse};
}

// Checks that receipts get what the compiled programs send.
Fault sent_fault(const lanes::LaneWork& work) {
  const ShardReport& report = work.facts().shards->report;
  for (const bool backward : {false, true}) {
    auto text = work.program_text(backward);
    if (!text) return text.error().message;
    auto audit = audit_program(*text);
    if (!audit) return audit.error().message;
    const Moved& moved = backward ? report.backward : report.forward;
    const int64_t sent = testing::capacity_of(*audit);
    if (moved.capacity == sent && moved.sent == sent) continue;
    return std::string(backward ? "backward" : "forward") + " sends " +
           std::to_string(sent) + " bytes, reported " +
           std::to_string(moved.sent);
  }
  return {};
}

Fault run_fault(lanes::OpenLane& lane, AttentionArrays& arrays) {
  const AttentionCase& c = arrays.c;
  const testing::Wanted want = testing::wanted(arrays, true);
  arrays.clear_outputs();
  auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
  if (!batch) return batch.error().message;
  auto work = lane.prepare(*batch, call_of(c), nullptr);
  if (!work) return work.error().message;
  if (auto f = sent_fault(**work)) return f;
  const ForwardTensors forward = arrays.forward(true);
  auto ran = (*work)->forward(forward, nullptr);
  if (!ran) return ran.error().message;
  if (auto f = testing::forward_fault(want, forward)) return f;
  if (auto f = arrays.spilled()) return f;
  const Plan& plan = batch->plan();
  const int64_t active = static_cast<int64_t>(plan.forward.entries.size()) *
                         (c.shape.heads / plan.heads);
  if (ran->tiles_run != active) {
    return "tiles_run is " + std::to_string(ran->tiles_run) + ", not " +
           std::to_string(active);
  }
  const Gradients back = arrays.gradients();
  // Reads out and the log-sum-exp of the forward pass.
  auto returned = (*work)->backward(forward, back, nullptr);
  if (!returned) return returned.error().message;
  if (auto f = testing::backward_fault(c, want, back)) return f;
  if (auto f = arrays.spilled()) return f;
  return testing::resident_fault(**work, *batch, arrays);
}

Fault sharded_fault(const std::string& plugin, const testing::RandomCase& c) {
  AttentionArrays arrays(testing::random_attention(c));
  const int64_t plan_heads = static_cast<int64_t>(std::max<size_t>(
      c.masks.size(), static_cast<size_t>(c.picks ? c.pick_heads : 1)));
  // Otherwise a device could get half of one plan head's heads, and others.
  const bool may_part =
      plan_heads == 1 || plan_heads % 2 == 0 || arrays.c.shape.kv_heads == 1;
  std::mt19937_64 random(c.seed * 31 + 1);
  lanes::LaneOptions options = options_for(plugin);
  options.mesh = random_mesh(random, may_part);
  options.shards.balance = static_cast<Balance>(random() % 4);
  constexpr TileExchange kExchanges[] = {
      TileExchange::rounds, TileExchange::gather, TileExchange::automatic};
  options.shards.exchange = kExchanges[c.seed % std::size(kExchanges)];
  auto lane = open_shard_lane(options);
  if (!lane) return lane.error().message;
  if (auto f = run_fault(**lane, arrays)) {
    return to_string(options.mesh) + " " +
           std::string(to_string(options.shards.balance)) + " " +
           std::string(to_string(options.shards.exchange)) + ": " + *f + "\n" +
           describe(arrays.c);
  }
  return {};
}

// Compiles ahead of time, for 4, 16 and 256 chips, and for chips beside v6e.
TEST(ShardProgram, CompilesForTpus) {
  auto plugin = testing::real_plugin("libtpu");
  if (testing::is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
  ASSERT_TRUE(plugin) << plugin.error().message;
  AttentionCall call;
  call.shape = {4, 2, 128, 128, {}, 0};
  call.dtype = Dtype::bf16;
  ShardOptions options;
  options.shape = call.shape;
  options.balance = Balance::tasks;
  for (const auto& [target, mesh, exchange] : testing::tpu_meshes()) {
    options.exchange = exchange;
    Request request;
    request.masks = {*parse_mask("causal")};
    request.batch = 16;
    request.q_len = request.kv_len = 8192;
    auto batch = OwnedBatch::make(request, {});
    ASSERT_TRUE(batch) << batch.error().message;
    auto shards = make_shards(*batch, *parse_mesh(mesh), options);
    ASSERT_TRUE(shards) << shards.error().message;
    auto topology = pjrt::make_topology(**plugin, target);
    ASSERT_TRUE(topology) << topology.error().message;
    for (const bool backward : {false, true}) {
      auto text = program_text(*batch, *shards, call, backward);
      ASSERT_TRUE(text) << text.error().message;
      auto spread = pjrt::options_of(*topology, *text);
      ASSERT_TRUE(spread) << spread.error().message;
      EXPECT_EQ(spread->partitions, parse_mesh(mesh)->devices());
      auto compiled = pjrt::compile(*topology, *text, *spread);
      ASSERT_TRUE(compiled) << target << ": " << compiled.error().message;
    }
  }
  auto one = pjrt::make_topology(**plugin, "v6e:1x1");
  ASSERT_TRUE(one) << one.error().message;
  EXPECT_EQ(pjrt::options_of(*one, "module @m {}")->partitions, 1);
  EXPECT_EQ(
      pjrt::options_of(*one, "mhlo.num_partitions = 4 : i32").error().message,
      "[pjrt] a program's partitions must be the 1 devices of v6e:1x1, "
      "found 4");
  EXPECT_EQ(pjrt::options_of(*one, "mhlo.num_partitions = x").error().message,
            "[pjrt] mhlo.num_partitions = must be followed by a number from 1 "
            "on, found none");
}

// Partitions are read from a module's code, not from comments or strings.
TEST(ShardProgram, SaysItsPartitionsInCodeAlone) {
  auto plugin = testing::real_plugin("libtpu");
  if (testing::is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
  ASSERT_TRUE(plugin) << plugin.error().message;
  auto four = pjrt::make_topology(**plugin, "v6e:2x2");
  ASSERT_TRUE(four) << four.error().message;
  struct Case {
    std::string text;
    int64_t partitions;
    bool shardy;
  };
  const std::string says = "mhlo.num_partitions = 4 : i32";
  for (const Case& c : {
           Case{"// " + says + "\nmodule @m {}", 1, false},
           Case{"module @m {} // " + says, 1, false},
           Case{"module @\"" + says + "\" {}", 1, false},
           Case{"// mhlo.num_partitions = x\n" + says, 4, false},
           Case{"\"\\\"//\" " + says + " // sdy.mesh", 4, false},
           Case{says + " a / b // \"\n sdy.mesh", 4, true},
           Case{says + " \"xla.sdy.GlobalToLocalShape\"", 4, true},
           Case{says + " \"sdy. without an end \\", 4, true},
       }) {
    auto found = pjrt::options_of(*four, c.text);
    ASSERT_TRUE(found) << c.text << ": " << found.error().message;
    EXPECT_EQ(found->partitions, c.partitions) << c.text;
    EXPECT_EQ(found->use_shardy, c.shardy) << c.text;
  }
}

// Without a plugin name the lane takes the plugin that a trainer would take.
TEST(ShardLane, TakesThePluginThatATrainerTakes) {
  lanes::LaneOptions options = options_for("");
  options.mesh.axes = {{"seq", 2}};
  const auto due =
      testing::real_plugin(default_plugin(*find_layer_spec("xla")));
  if (testing::is_absent(due)) GTEST_SKIP() << due.error().message;
  ASSERT_TRUE(due) << due.error().message;
  auto lane = open_shard_lane(options);
  ASSERT_TRUE(lane) << lane.error().message;
  EXPECT_EQ((*lane)->place()->plugin, (*due)->path());
}

class XlaShards : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    lanes::LaneOptions options = options_for(GetParam());
    options.mesh.axes = {{"seq", kDevices}};
    auto lane = open_shard_lane(options);
    if (testing::is_absent(lane)) GTEST_SKIP() << lane.error().message;
    ASSERT_TRUE(lane) << lane.error().message;
  }
};
INSTANTIATE_TEST_SUITE_P(Plugins, XlaShards, ::testing::ValuesIn(kPlugins));

// A case takes two compiles, so failing cases are not shrunk.
TEST_P(XlaShards, JoinedDevicesAreTheReference) {
  const uint64_t first = testing::first_seed(1);
  const int64_t n = testing::case_count(12);
  for (int64_t i = 0; i < n; ++i) {
    const testing::RandomCase c =
        testing::random_case(first + static_cast<uint64_t>(i));
    const Fault fault = sharded_fault(GetParam(), c);
    ASSERT_FALSE(fault) << "run again with TESSERA_SEED=" << c.seed
                        << " TESSERA_CASES=1\n"
                        << *fault;
  }
}

// Masks or picks that differ by head, with heads split over devices.
struct HeadsCase {
  std::vector<const char*> masks;
  const char* mesh;
  int64_t heads, kv_heads;
  int64_t pick_heads = 0;  // of blocks of 8 keys
};
constexpr int64_t kHeadsTokens = 50;

// The attention of a case; the seed sets the picks.
AttentionCase attention_of(const HeadsCase& from, uint64_t seed) {
  AttentionCase c;
  for (const char* mask : from.masks) {
    c.plan.masks.push_back(*parse_expr(mask));
  }
  c.plan.batch = 2;
  c.plan.q_len = c.plan.kv_len = kHeadsTokens;
  c.plan.tile = {16, 16};
  c.plan.doc_ids.emplace();
  for (int64_t i = 0; i < c.plan.batch * kHeadsTokens; ++i) {
    const int64_t at = i % kHeadsTokens;
    c.plan.doc_ids->push_back(
        at < kHeadsTokens - 3 ? static_cast<int32_t>(at * at / 500) : -1);
  }
  if (from.pick_heads > 0) {
    std::mt19937_64 random(seed);
    c.plan.pick_heads = from.pick_heads;
    c.plan.pick_k = 2;
    c.plan.picks.emplace();
    const int64_t slots = c.plan.batch * from.pick_heads * kHeadsTokens * 2;
    for (int64_t i = 0; i < slots; ++i) {
      c.plan.picks->push_back(static_cast<int32_t>(random() % 8) - 1);
    }
  }
  c.shape = {from.heads, from.kv_heads, 8, 16, {}, 0};
  c.sinks = seed % 2 == 0;
  c.dlse = seed % 3 == 0;
  c.seed = seed;
  return c;
}

TEST_P(XlaShards, PlanHeadsLieWithTheirHeads) {
  const std::vector<const char*> two = {"causal & documents", "window(9, 2)"};
  const std::vector<const char*> four = {"window(9, 2)", "causal & documents",
                                         "window(20, 0) | sink(3)",
                                         "!causal & window(5, 30)"};
  const std::vector<const char*> picked = {"blocks(8) & causal & documents"};
  const HeadsCase cases[] = {
      {two, "head=2", 4, 2},
      {four, "head=2,seq=2", 4, 4},
      {four, "seq=2,head=2", 8, 2},
      // The heads of one plan head are on two devices.
      {two, "head=4", 8, 4},
      {picked, "head=4", 8, 4, 4},
      {picked, "head=2,seq=2", 8, 2, 8},
      {picked, "head=4", 8, 4, 2},
      {{"blocks(8) & documents", "causal", "blocks(8) | window(3, 0)",
        "causal"},
       "head=2,data=2",
       4,
       4,
       2},
      {{"blocks(8) & documents", "blocks(8) & causal"}, "head=2", 4, 2, 1},
      // The first device has one K/V head of three.
      {{"window(9, 2)", "causal & documents", "sink(3)"}, "head=2", 6, 3},
  };
  for (size_t i = testing::first_case(std::size(cases)); i < std::size(cases);
       i += testing::case_stride()) {
    AttentionArrays arrays(attention_of(cases[i], i));
    lanes::LaneOptions options = options_for(GetParam());
    options.mesh = *parse_mesh(cases[i].mesh);
    options.shards.balance = static_cast<Balance>(i % 4);
    auto lane = open_shard_lane(options);
    ASSERT_TRUE(lane) << lane.error().message;
    const Fault fault = run_fault(**lane, arrays);
    EXPECT_FALSE(fault) << "case " << i << ": " << *fault;
  }
}

TEST_P(XlaShards, OtherPicksByHeadDoNotCompileAgain) {
  lanes::LaneOptions options = options_for(GetParam());
  options.mesh = *parse_mesh("head=2,seq=2");
  options.shards.ceilings.rows = 8;
  options.shards.ceilings.steps = 128;
  options.shards.ceilings.kv_rounds = {8};
  auto lane = open_shard_lane(options);
  ASSERT_TRUE(lane) << lane.error().message;
  int64_t compiles = 0;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    AttentionCase c = attention_of(
        {{"blocks(8)", "blocks(8) & documents"}, "", 4, 2, 2}, seed);
    c.sinks = c.dlse = false;
    AttentionArrays arrays(c);
    auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
    ASSERT_TRUE(batch) << batch.error().message;
    auto work = (*lane)->prepare(*batch, call_of(c), nullptr);
    ASSERT_TRUE(work) << work.error().message;
    compiles += (*work)->facts().compiles;
  }
  EXPECT_EQ(compiles, 2);
}

TEST_P(XlaShards, HalfOfAPlanHeadBesideAnotherIsRefused) {
  const AttentionCase c = attention_of(
      {{"window(9, 2)", "causal & documents", "sink(3)"}, "", 6, 2}, 1);
  AttentionArrays arrays(c);
  lanes::LaneOptions options = options_for(GetParam());
  options.mesh = *parse_mesh("head=2");
  auto lane = open_shard_lane(options);
  ASSERT_TRUE(lane) << lane.error().message;
  auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
  ASSERT_TRUE(batch) << batch.error().message;
  EXPECT_EQ((*lane)->prepare(*batch, call_of(c), nullptr).error().message,
            "[xla] heads of a device must be those of whole plan heads or lie "
            "in one, found heads 3 to 5 in plan heads 1 to 2 for head=2 "
            "(repeat the masks until they are 6, for fewer heads each)");
}

// One program serves every batch: 100 batches compile once per direction.
TEST_P(XlaShards, BatchesDoNotCompileAgain) {
  lanes::LaneOptions options = options_for(GetParam());
  options.mesh.axes = {{"seq", 2}};
  options.shards.balance = Balance::rows;
  options.shards.ceilings.rows = 8;
  options.shards.ceilings.steps = 64;
  options.shards.ceilings.kv_rounds = {8};
  auto lane = open_shard_lane(options);
  ASSERT_TRUE(lane) << lane.error().message;
  AttentionCall call;
  call.shape = {2, 1, 8, 8, {}, 0};
  call.backward = true;
  int64_t compiles = 0;
  std::mt19937_64 random(5);
  for (int i = 0; i < 100; ++i) {
    std::vector<int32_t> ids(128);
    int32_t id = 0;
    for (int32_t& x : ids) x = id += random() % 9 == 0 ? 1 : 0;
    auto mask = parse_mask("causal & documents");
    ASSERT_TRUE(mask);
    Request request;
    request.masks = {*mask};
    request.q_len = request.kv_len = 128;
    request.tile = {16, 16};
    Facts facts;
    facts.doc_ids = ids;
    auto batch = OwnedBatch::copy(request, facts);
    ASSERT_TRUE(batch) << batch.error().message;
    auto work = (*lane)->prepare(*batch, call, nullptr);
    ASSERT_TRUE(work) << work.error().message;
    compiles += (*work)->facts().compiles;
  }
  EXPECT_EQ(compiles, 2);
}

TEST_P(XlaShards, RefusesWhatCannotRun) {
  lanes::LaneOptions options = options_for(GetParam());
  options.mesh.axes = {{"seq", 2}};
  options.xla.method = XlaMethod::dense;
  EXPECT_EQ(open_shard_lane(options).error().message,
            "[xla] a mesh must run the method worklist, found dense");
  options.xla.method = XlaMethod::worklist;
  options.xla.client_options = {"cpu_device_count=2"};
  options.mesh.axes = {{"seq", 4}};
  EXPECT_EQ(open_shard_lane(options).error().message,
            "[mesh] a mesh must have its 4 devices from number 0 on, found 2");
  options.xla.client_options = {};
  options.shards.exchange = TileExchange::ragged;
  EXPECT_EQ(open_shard_lane(options).error().message,
            "[xla] a ragged exchange must be on a TPU, found platform cpu");
}

// Only the lanes xla and mosaic spread a call over a mesh.
TEST(SessionMesh, AnotherLaneIsRefused) {
  SessionOptions options;
  options.mesh.axes = {{"seq", 2}};
  options.lane = LaneId::cpu;
  EXPECT_EQ(Session::open(options).error().message,
            "[run] a mesh must run on lane xla or mosaic, found cpu");
  options.lane = LaneId::xla;
  options.fallback = {LaneId::mosaic, LaneId::cpu};
  EXPECT_EQ(Session::open(options).error().message,
            "[run] a mesh must run on lane xla or mosaic, found cpu");
}

}  // namespace
}  // namespace tessera::xla
