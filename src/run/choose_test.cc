// run/choose_test.cc: the choice of a lane for every combination of what
// a request asks and what a machine has, ours or not.
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tessera/dispatch.h"

namespace tessera::run {
namespace {

struct MaskRow {
  const char* text;
  RequestClass due;
  bool mosaic;  // atoms that the TPU kernel has, joined by &
};
constexpr RequestClass kSparse = RequestClass::sparse_blocks;
constexpr RequestClass kCustom = RequestClass::custom;
constexpr RequestClass kPlain = RequestClass::plain_causal;
constexpr RequestClass kOther = RequestClass::other;
constexpr MaskRow kMasks[] = {
    {"full", kOther, true},
    {"causal", kPlain, true},
    {"window(15, 0)", kCustom, true},
    {"causal & window(15, 0)", kCustom, true},
    {"window(-1, 0)", kCustom, true},
    {"chunk(16)", kOther, false},
    {"causal & chunk(16)", kOther, false},
    {"prefix", kOther, false},
    {"causal | prefix", kOther, false},
    {"!causal", kOther, false},
    {"sink(4)", kOther, false},
    {"causal & (window(15, 0) | sink(4))", kCustom, false},
    {"documents", kSparse, true},
    {"causal & documents", kSparse, true},
    {"causal & window(15, 0) & documents", kSparse, true},
    {"segments", kSparse, true},
    {"causal & segments", kSparse, true},
    {"full | documents", kSparse, true},  // its veto stays
    {"blocks(16)", kSparse, false},
    {"causal & blocks(16)", kSparse, false},
    {"routed(2, 16)", kSparse, false},
    {"causal & (blocks(16) | window(15, 0))", kSparse, false},
};

struct MachineRow {
  const char* name;
  Machine machine;
  const char* device;      // what runs programs beside the cores
  const char* run_plugin;  // of the xla lane; "" none
};

std::vector<MachineRow> machines() {
  const std::vector<Isa> isas = {Isa::portable, Isa::avx2};
  const MachinePlugin cpu = {"xla_cpu_pjrt", "cpu", 4};
  const MachinePlugin tpu = {"libtpu", "tpu", 4};
  const MachinePlugin compiler = {"libtpu", "tpu", 0};
  const MachinePlugin gpu = {"/opt/cuda.so", "cuda", 1};
  const MachinePlugin metal = {"/opt/metal.so", "metal", 1};
  const auto with = [&](std::vector<MachinePlugin> plugins) {
    return Machine{"A CPU", 8, isas, true, true, std::move(plugins)};
  };
  std::vector<MachineRow> out = {
      {"a CPU", with({}), "cpu", ""},
      {"a CPU with a plugin", with({cpu}), "cpu", "xla_cpu_pjrt"},
      {"a CPU with libtpu", with({compiler}), "cpu", ""},
      {"a CPU with both", with({compiler, cpu}), "cpu", "xla_cpu_pjrt"},
      {"a TPU", with({tpu}), "tpu", "libtpu"},
      {"a TPU and a plugin", with({cpu, tpu}), "tpu", "libtpu"},
      {"a GPU", with({gpu}), "cuda", "/opt/cuda.so"},
      {"a GPU, libtpu", with({compiler, cpu, gpu}), "cuda", "/opt/cuda.so"},
      {"another device", with({cpu, metal}), "metal", "/opt/metal.so"},
  };
  Machine no_header = with({});
  no_header.loads_plugins = false;
  out.push_back({"a build without plugins", no_header, "cpu", ""});
  Machine not_asked = with({});
  not_asked.asked_plugins = false;
  out.push_back({"plugins not asked", not_asked, "cpu", ""});
  Machine no_isa = with({cpu});
  no_isa.isas.clear();
  out.push_back({"a CPU of no known ISA", no_isa, "cpu", "xla_cpu_pjrt"});
  return out;
}

RequestFeatures features(const char* mask, const AttentionShape& shape,
                         const CallFeatures& call, int64_t tokens = 4096) {
  Request request;
  request.masks = {*parse_mask(mask)};
  request.q_len = request.kv_len = tokens;
  return features_of(request, {}, shape, call);
}

const Rejected* find(const Choice& choice, LaneId lane) {
  for (const Rejected& r : choice.rejected) {
    if (r.lane == lane) return &r;
  }
  return nullptr;
}

// The rules once more, in plain words. `tokens` is both lengths.
struct Due {
  std::optional<LaneId> lane;
  XlaMethod method = XlaMethod::worklist;
};
Due due_of(const MaskRow& mask, const AttentionShape& shape,
           const CallFeatures& call, const MachineRow& on, int64_t tokens) {
  RequestClass c = mask.due;
  if (shape.softcap != 0 && c != kSparse) c = kCustom;
  const std::string device = on.device;
  const bool dims = shape.head_dim % 8 == 0 && shape.head_dim <= 256;
  const bool native = dims && !on.machine.isas.empty();
  const bool compiler = dims && std::string(on.run_plugin) != "";
  const XlaMethod plain =
      tokens <= 1024 ? XlaMethod::dense : XlaMethod::chunked;
  const bool kernel = mask.mosaic && call.dtype == Dtype::bf16 &&
                      shape.head_dim == 128 && shape.softcap == 0 &&
                      !call.sink_logits;
  if (call.compile_only) {
    bool tpu = false;
    for (const MachinePlugin& p : on.machine.plugins)
      tpu |= p.platform == "tpu";
    return tpu && kernel ? Due{LaneId::mosaic} : Due{};
  }
  const XlaMethod method = c == kPlain   ? plain
                           : c == kOther ? XlaMethod::chunked
                                         : XlaMethod::worklist;
  if (device == "tpu" && kernel && (c == kSparse || c == kCustom)) {
    return {LaneId::mosaic};
  }
  if (device != "cpu") {
    if (compiler) return {LaneId::xla, method};
    if (native) return {LaneId::cpu};
    return {};
  }
  if (native) return {LaneId::cpu};
  if (compiler) return {LaneId::xla, c == kOther ? plain : method};
  return {};
}

TEST(Choose, EveryCombination) {
  int chosen = 0, none = 0;
  for (const MachineRow& on : machines()) {
    for (const MaskRow& mask : kMasks) {
      for (int bits = 0; bits < 1 << 5; ++bits) {
        for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
          for (const int64_t dim : {128, 64, 12, 264}) {
            const AttentionShape shape = {
                8, 8, dim, dim, {}, (bits & 1) != 0 ? 30.0 : 0.0};
            const CallFeatures call = {dtype, (bits & 2) != 0, (bits & 4) != 0,
                                       (bits & 8) != 0, false};
            const int64_t tokens = (bits & 16) != 0 ? 512 : 4096;
            const RequestFeatures f = features(mask.text, shape, call, tokens);
            const Due due = due_of(mask, shape, call, on, tokens);
            const auto choice = choose(f, {100, 50}, on.machine);
            const std::string what = std::string(on.name) + ", " + mask.text +
                                     ", bits " + std::to_string(bits) +
                                     ", dim " + std::to_string(dim);
            ASSERT_EQ(choice.ok(), due.lane.has_value())
                << what << ": "
                << (choice ? choice->reason : choice.error().message);
            if (!choice) {
              ++none;
              EXPECT_EQ(choice.error().kind, ErrorKind::unavailable);
              // Each lane is named with what it lacks.
              for (const LaneFacts& lane : lane_registry()) {
                EXPECT_NE(choice.error().message.find(
                              std::string(to_string(lane.lane)) + ": "),
                          std::string::npos)
                    << choice.error().message;
              }
              continue;
            }
            ++chosen;
            EXPECT_EQ(choice->lane, *due.lane) << what;
            if (choice->lane == LaneId::xla) {
              EXPECT_EQ(choice->method, due.method) << what;
              EXPECT_EQ(choice->plugin, on.run_plugin) << what;
            }
            EXPECT_FALSE(choice->reason.empty());
            EXPECT_EQ(choice->rejected.size(), lane_registry().size() - 1);
            for (const LaneFacts& lane : lane_registry()) {
              if (lane.lane == choice->lane) continue;
              const Rejected* r = find(*choice, lane.lane);
              ASSERT_NE(r, nullptr) << what;
              EXPECT_FALSE(r->reason.empty()) << what;
              const auto why = why_not(lane.lane, f, on.machine);
              if (why) {
                EXPECT_EQ(r->reason, *why);
              }
            }
            EXPECT_FALSE(why_not(choice->lane, f, on.machine)) << what;
          }
        }
      }
    }
  }
  EXPECT_GT(chosen, 10000);
  EXPECT_GT(none, 10000);
}

// The words of the rules, one by one.
TEST(Choose, FollowsTheRules) {
  const AttentionShape shape = {8, 8, 128, 128, {}, 0};
  AttentionShape capped = shape;
  capped.softcap = 30;
  const std::vector<MachineRow> all = machines();
  const auto on = [&](const char* name) {
    for (const MachineRow& row : all) {
      if (std::string(row.name) == name) return row.machine;
    }
    return Machine{};
  };
  const auto pick = [&](const char* mask, const AttentionShape& s,
                        const char* machine) {
    const auto c = choose(features(mask, s, {}), {64, 40}, on(machine));
    return c ? std::string(to_string(c->lane)) + " " +
                   std::string(c->lane == LaneId::xla ? to_string(c->method)
                                                      : "")
             : c.error().message;
  };
  // Plain causal goes to the stable path; on a CPU that is the cpu lane.
  EXPECT_EQ(pick("causal", shape, "a TPU"), "xla chunked");
  EXPECT_EQ(pick("causal", shape, "a GPU"), "xla chunked");
  EXPECT_EQ(pick("causal", shape, "a CPU with a plugin"), "cpu ");
  // A softcap, a window or documents take it off that path.
  for (const char* mask : {"causal & window(99, 0)", "causal & documents",
                           "causal & blocks(64)"}) {
    EXPECT_EQ(pick(mask, shape, "a TPU"), "xla worklist") << mask;
    EXPECT_EQ(pick(mask, shape, "a GPU"), "xla worklist") << mask;
    EXPECT_EQ(pick(mask, shape, "a CPU with a plugin"), "cpu ") << mask;
  }
  EXPECT_EQ(pick("causal", capped, "a TPU"), "xla worklist");
  // Otherwise chunked.
  EXPECT_EQ(pick("causal | prefix", shape, "a TPU"), "xla chunked");
  EXPECT_EQ(pick("chunk(64)", shape, "a GPU"), "xla chunked");
  // Our TPU kernel has bf16 alone, and libtpu without a TPU runs nothing.
  const auto c = choose(features("causal & documents", shape, {Dtype::bf16}),
                        {64, 40}, on("a TPU"));
  EXPECT_EQ(c->lane, LaneId::mosaic);
  EXPECT_EQ(c->reason,
            "sparse blocks go to the block-sparse kernels: on tpu the mosaic "
            "lane");
  const auto alone =
      choose(features("causal & documents", shape, {Dtype::bf16}), {64, 40},
             on("a CPU with libtpu"));
  EXPECT_EQ(alone->lane, LaneId::cpu);
  EXPECT_EQ(find(*alone, LaneId::mosaic)->reason,
            "libtpu has no device here: it compiles and does not run");
  EXPECT_EQ(find(*c, LaneId::xla)->reason, "it could, but mosaic comes first");
  EXPECT_EQ(find(*c, LaneId::cuda)->reason, "this version has no cuda lane");
  EXPECT_EQ(find(*c, LaneId::reference)->reason,
            "it runs only where it is asked for by name");
  EXPECT_EQ(find(*c, LaneId::cpu)->reason, "it could, but mosaic comes first");
}

// An artifact of JAX's is the other stable kernel, behind the compiler's own.
TEST(Choose, ABridgeNeedsItsArtifact) {
  Machine tpu{"A CPU", 8, {Isa::portable}, true, true, {{"libtpu", "tpu", 4}}};
  const AttentionShape odd = {8, 8, 100, 100, {}, 0};  // not for our programs
  CallFeatures call;
  auto c = choose(features("causal", odd, call), {1, 1}, tpu);
  ASSERT_FALSE(c.ok());
  EXPECT_NE(c.error().message.find("jax_bridge: it needs an artifact"),
            std::string::npos);
  call.bridge_artifact = true;
  c = choose(features("causal", odd, call), {1, 1}, tpu);
  ASSERT_TRUE(c.ok()) << c.error().message;
  EXPECT_EQ(c->lane, LaneId::jax_bridge);
  c = choose(features("causal", {8, 8, 128, 128, {}, 0}, call), {1, 1}, tpu);
  EXPECT_EQ(c->lane, LaneId::xla);
}

TEST(Choose, AForcedLaneRunsOrFails) {
  const AttentionShape shape = {8, 8, 128, 128, {}, 0};
  for (const MachineRow& on : machines()) {
    for (const LaneFacts& lane : lane_registry()) {
      const RequestFeatures f = features("causal & documents", shape, {});
      const auto why = why_not(lane.lane, f, on.machine);
      const auto c = choose(f, {64, 40}, on.machine, {}, lane.lane);
      ASSERT_EQ(c.ok(), !why) << on.name;
      if (c) {
        EXPECT_EQ(c->lane, lane.lane);
        EXPECT_EQ(c->rejected.size(), lane_registry().size() - 1);
      } else {
        EXPECT_EQ(c.error().message,
                  "[dispatch] the lane that was asked for must be able to run "
                  "this, found " +
                      std::string(to_string(lane.lane)) + ": " + *why);
      }
    }
  }
}

GateRow row_of(const RequestFeatures& f, const Machine& m, double density,
               double kernel_ms, double plain_ms) {
  GateRow row;
  row.kernel = "cpu/forward";
  row.machine = m.key();
  row.request_class = f.request_class;
  row.mask = "causal";
  row.dtype = f.call.dtype;
  row.backward = f.call.backward;
  row.q_len = f.q_len;
  row.kv_len = f.kv_len;
  row.shape = f.shape;
  row.density = density;
  row.kernel_ms = kernel_ms;
  row.plain_ms = plain_ms;
  row.plain = XlaMethod::chunked;
  row.verdict = judge_gate(kernel_ms, plain_ms);
  return row;
}

TEST(Gate, VerdictsFollowTheTimes) {
  EXPECT_EQ(judge_gate(1, 2), GateVerdict::promote);
  EXPECT_EQ(judge_gate(1, 1.11), GateVerdict::promote);
  EXPECT_EQ(judge_gate(1, 1.05), GateVerdict::experimental);
  EXPECT_EQ(judge_gate(1, 1.03), GateVerdict::drop);  // a tie removes
  EXPECT_EQ(judge_gate(1, 1), GateVerdict::drop);
  EXPECT_EQ(judge_gate(2, 1), GateVerdict::drop);
}

TEST(Gate, AMeasuredRowGoesBeforeTheRules) {
  const AttentionShape shape = {8, 8, 128, 128, {}, 0};
  const Machine cpu{"A CPU", 8,    {Isa::portable},
                    true,    true, {{"xla_cpu_pjrt", "cpu", 4}}};
  const RequestFeatures f = features("causal", shape, {});
  const PlanFacts plan = {100, 55};
  const auto pick = [&](const GateRow& row, const PlanFacts& with) {
    return *choose(f, with, cpu, {{row}});
  };
  GateRow slow = row_of(f, cpu, 0.6, 10, 5);
  Choice c = pick(slow, plan);
  EXPECT_EQ(c.lane, LaneId::xla);
  EXPECT_EQ(c.method, XlaMethod::chunked);
  ASSERT_TRUE(c.measured.has_value());
  EXPECT_EQ(c.reason,
            "measured on this machine at this density: cpu/forward took 2.00 "
            "times as long as plain xla (verdict: delete)");
  EXPECT_EQ(pick(row_of(f, cpu, 0.6, 5, 10), plan).lane, LaneId::cpu);
  EXPECT_EQ(pick(row_of(f, cpu, 0.6, 10, 10.5), plan).lane, LaneId::cpu);

  // It says nothing of another density, machine or shape.
  EXPECT_EQ(pick(slow, {100, 20}).lane, LaneId::cpu);
  EXPECT_FALSE(pick(slow, {100, 20}).measured.has_value());
  const auto but = [&](auto change) {
    GateRow row = slow;
    change(row);
    return pick(row, plan).lane;
  };
  EXPECT_EQ(but([](GateRow&) {}), LaneId::xla);
  EXPECT_EQ(but([](GateRow& r) { r.q_len = 4000; }), LaneId::xla);  // a bucket
  EXPECT_EQ(but([](GateRow& r) { r.shape.heads = r.shape.kv_heads = 2; }),
            LaneId::xla);
  EXPECT_EQ(but([](GateRow& r) { r.machine = "B CPU"; }), LaneId::cpu);
  EXPECT_EQ(but([](GateRow& r) { r.request_class = kSparse; }), LaneId::cpu);
  EXPECT_EQ(but([](GateRow& r) { r.backward = true; }), LaneId::cpu);
  EXPECT_EQ(but([](GateRow& r) { r.dtype = Dtype::bf16; }), LaneId::cpu);
  EXPECT_EQ(but([](GateRow& r) { r.shape.head_dim = 64; }), LaneId::cpu);
  EXPECT_EQ(but([](GateRow& r) { r.shape.v_head_dim = 64; }), LaneId::cpu);
  EXPECT_EQ(but([](GateRow& r) { r.shape.kv_heads = 4; }), LaneId::cpu);
  EXPECT_EQ(but([](GateRow& r) { r.shape.softcap = 30; }), LaneId::cpu);
  EXPECT_EQ(but([](GateRow& r) { r.q_len = 2048; }), LaneId::cpu);
  EXPECT_EQ(but([](GateRow& r) { r.kv_len = 9000; }), LaneId::cpu);
  EXPECT_EQ(but([](GateRow& r) { r.verdict = GateVerdict::unmeasured; }),
            LaneId::cpu);

  // Where its winner cannot run, the rules hold; a forced lane is forced.
  Machine bare = cpu;
  bare.plugins.clear();
  const auto ruled = choose(f, plan, bare, {{slow}});
  EXPECT_EQ(ruled->lane, LaneId::cpu);
  EXPECT_FALSE(ruled->measured.has_value());
  EXPECT_EQ(choose(f, plan, cpu, {{slow}}, LaneId::cpu)->lane, LaneId::cpu);
}

TEST(Gate, TablesGoThroughJson) {
  const AttentionShape shape = {8, 2, 128, 64, {}, 30};
  const Machine cpu{"A CPU", 8, {Isa::portable}, true, true, {}};
  GateTable table;
  table.rows.push_back(row_of(features("causal", shape, {}), cpu, 0.25, 3, 4));
  GateRow tpu = table.rows[0];
  tpu.kernel = "mosaic/forward";
  tpu.lane = LaneId::mosaic;
  tpu.kernel_ms.reset();
  tpu.plain_ms.reset();
  tpu.verdict = GateVerdict::unmeasured;
  tpu.why = "no TPU";
  table.rows.push_back(tpu);
  const std::string json = gate_json(table);
  const auto again = parse_gate(json);
  ASSERT_TRUE(again.ok()) << again.error().message;
  ASSERT_EQ(again->rows.size(), 2u);
  EXPECT_EQ(gate_json(*again), json);
  EXPECT_EQ(again->rows[1].lane, LaneId::mosaic);

  const auto broken = [&](const std::string& from, const std::string& to) {
    std::string text = json;
    text.replace(text.find(from), from.size(), to);
    const auto r = parse_gate(text);
    return r ? std::string("read") : r.error().message;
  };
  EXPECT_EQ(broken("\"promote\"", "\"delete\""),
            "[gate] a verdict must be that of its times, promote, found delete "
            "for 'cpu/forward'");
  EXPECT_EQ(broken("\"A CPU, ", "\"A\\nCPU, "),
            "[gate] machine must hold no control characters, found "
            "'A\\x0aCPU, 8 threads, portable'");
  EXPECT_EQ(broken("\"cpu/forward\"", "\"xla/forward\""),
            "[gate] kernel must be one of its lane, cpu, found 'xla/forward'");
  EXPECT_EQ(broken("\"lane\": \"cpu\"", "\"lane\": \"reference\""),
            "[gate] lane must be one of our kernels', found reference");
  EXPECT_EQ(broken("\"unmeasured\"", "\"promote\""),
            "[gate] a verdict must be that of its times, unmeasured, found "
            "promote for 'mosaic/forward'");
  EXPECT_TRUE(broken("\"density\": 0.25", "\"density\": 1.5")
                  .starts_with("[gate] density must be a number from 0 to 1"));
  EXPECT_TRUE(broken("\"kernel_ms\": 3.0", "\"kernel_ms\": 0")
                  .starts_with("[gate] kernel_ms must be "));
  EXPECT_TRUE(broken("\"schema\": 1", "\"schema\": 2").starts_with("[gate] "));
  EXPECT_TRUE(broken("\"q_len\"", "\"qlen\"").starts_with("[gate] "));
  EXPECT_TRUE(broken("\"lane\": \"cpu\"", "\"lane\": \"npu\"")
                  .starts_with("[dispatch] a lane must be one of "));
  EXPECT_TRUE(broken("\"rows\": [", "\"rows\": [3, ").starts_with("[gate] "));
  EXPECT_TRUE(parse_gate("{").error().message.starts_with("[gate] "));
}

TEST(Gate, DensityClassesHalve) {
  EXPECT_EQ(density_class(1), 0);
  EXPECT_EQ(density_class(0.51), 0);
  EXPECT_EQ(density_class(0.5), 1);
  EXPECT_EQ(density_class(0.26), 1);
  EXPECT_EQ(density_class(0.25), 2);
  EXPECT_EQ(density_class(1e-9), 10);
  EXPECT_EQ(density_class(0), 10);
}

TEST(Lanes, HaveNamesAndFamilies) {
  for (const LaneFacts& lane : lane_registry()) {
    EXPECT_EQ(*parse_lane(to_string(lane.lane)), lane.lane);
    EXPECT_EQ(facts_of(lane.lane).about, lane.about);
  }
  EXPECT_EQ(parse_lane("gpu").error().message,
            "[dispatch] a lane must be one of cpu, xla, mosaic, jax_bridge, "
            "cuda, reference, found 'gpu'");
  EXPECT_EQ(lane_family(LaneId::cpu, ""), "native");
  EXPECT_EQ(lane_family(LaneId::reference, ""), "reference");
  EXPECT_EQ(lane_family(LaneId::xla, "cpu"), "xla");
  EXPECT_EQ(lane_family(LaneId::xla, "tpu"), "tpu/jax");
  EXPECT_EQ(lane_family(LaneId::xla, "cuda"), "cuda");
  EXPECT_EQ(lane_family(LaneId::jax_bridge, "cpu"), "tpu/jax");
  EXPECT_EQ(lane_family(LaneId::mosaic, "tpu"), "tpu/jax");
  EXPECT_EQ(lane_family(LaneId::cuda, "cuda"), "cuda");
}

}  // namespace
}  // namespace tessera::run
