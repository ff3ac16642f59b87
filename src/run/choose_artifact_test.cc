// run/choose_artifact_test.cc: tests that an artifact is chosen if it was
// exported for the device and has room for the plan.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "base/files.h"
#include "plan/make_plan.h"
#include "run/features.h"
#include "run/reason_needed.h"
#include "tessera/dispatch.h"

namespace tessera::run {
namespace {

// Plain causal, with an artifact for it, of lane jax_bridge or splash.
RequestFeatures causal_of(LaneId lane) {
  Request request;
  request.masks = {*parse_mask("causal")};
  request.q_len = request.kv_len = 4096;
  CallFeatures call;
  call.dtype = Dtype::bf16;
  call.artifact_platforms = {"tpu"};
  call.bridge_artifact = lane == LaneId::jax_bridge;
  RequestFeatures f =
      features_of(request, {}, {8, 8, 128, 128, 0.125, 0}, call);
  if (lane == LaneId::splash) {
    f.call.splash = {f.call.dtype, f.shape, f.q_len, f.kv_len, f.tile.q,
                     f.tile.kv,    1,       64,      64};
  }
  return f;
}

GateRow winning_row(LaneId lane, const RequestFeatures& f, const Machine& m) {
  GateRow row;
  row.kernel = std::string(to_string(lane)) + "/forward";
  row.lane = lane;
  row.machine = m.key();
  row.request_class = f.request_class;
  row.dtype = f.call.dtype;
  row.q_len = f.q_len;
  row.kv_len = f.kv_len;
  row.shape = f.shape;
  row.density = 36.0 / 64;
  row.kernel_ms = 1;
  row.plain_ms = 2;
  row.factor = 2;
  row.judgement = GateJudgement::passed;
  row.error = 0.5;
  row.verdict = GateVerdict::promote;
  return row;
}

std::string reason_of(const Choice& choice, LaneId lane) {
  const auto at = std::ranges::find(choice.rejected, lane, &Rejected::lane);
  return at == choice.rejected.end() ? "chosen" : at->reason;
}

// Splash multiplies q by the scale in q's dtype. If that rounds, its scores are
// out of bounds, and it runs only by name.
TEST(ArtifactChoice, ARoundedScaleIsForThoseWhoNameIt) {
  const Machine tpu{"A CPU", 8,    {Isa::portable},
                    true,    true, {{"libtpu", "tpu", 4}}};
  const PlanFacts plan = {64, 36};
  struct Row {
    Dtype dtype;
    int64_t head_dim;
    std::optional<double> scale;
    const char* rounds;  // dtype and scale; null: exact, so it is chosen
  };
  const Row rows[] = {
      {Dtype::bf16, 64, {}, nullptr},  // 1 / 8
      {Dtype::bf16, 256, {}, nullptr},
      {Dtype::bf16, 128, 0.125, nullptr},
      {Dtype::bf16, 128, 4, nullptr},
      {Dtype::bf16, 128, -0.5, nullptr},
      {Dtype::bf16, 128, 0, nullptr},
      {Dtype::f16, 64, {}, nullptr},
      {Dtype::bf16, 128, {}, "bf16, 0.08838834764831843"},
      {Dtype::bf16, 64, 0.1, "bf16, 0.1"},
      {Dtype::f16, 64, 3, "f16, 3"},
  };
  for (const Row& row : rows) {
    RequestFeatures f = causal_of(LaneId::splash);
    f.shape = {8, 8, row.head_dim, row.head_dim, row.scale, 0};
    f.call.dtype = f.call.splash->dtype = row.dtype;
    f.call.splash->shape = f.shape;
    const auto c = choose(f, plan, tpu);
    ASSERT_TRUE(c.ok()) << c.error().message;
    EXPECT_EQ(c->lane, row.rounds ? LaneId::xla : LaneId::splash);
    EXPECT_TRUE(choose(f, plan, tpu, {}, LaneId::splash).ok());
    if (!row.rounds) continue;
    EXPECT_EQ(reason_of(*c, LaneId::splash),
              "its artifact rounds q times the scale to " +
                  std::string(row.rounds) +
                  " being no power of two: it runs where it is asked for by "
                  "name");
    // A row of a gate does not choose it either: its shape class has no scale.
    const GateRow wins = winning_row(LaneId::splash, f, tpu);
    EXPECT_EQ(choose(f, plan, tpu, {{wins}})->lane, LaneId::xla);
    GateRow loses = wins;
    loses.plain_ms = loses.factor = 0.5;
    EXPECT_TRUE(choose(f, plan, tpu, {{loses}})->gate.empty());
  }
}

// A TPU multiplies a kernel's float32 as bf16, whatever the scale; no other
// device does.
TEST(ArtifactChoice, OfFloat32OnATpuItIsForThoseWhoNameIt) {
  const MachinePlugin tpu = {"libtpu", "tpu", 4};
  const MachinePlugin gpu = {"/opt/cuda.so", "cuda", 1};
  const PlanFacts plan = {64, 36};
  for (const std::optional<double> scale : {std::optional(0.125), {}}) {
    for (const MachinePlugin& device : {tpu, gpu}) {
      const Machine m{"A CPU", 8, {Isa::portable}, true, true, {device}};
      RequestFeatures f = causal_of(LaneId::splash);
      f.call.artifact_platforms = {"tpu", "cuda"};
      f.shape.scale = scale;
      f.call.dtype = f.call.splash->dtype = Dtype::f32;
      f.call.splash->shape = f.shape;
      const bool rounds = device.platform == "tpu";
      const auto c = choose(f, plan, m);
      ASSERT_TRUE(c.ok()) << c.error().message;
      EXPECT_EQ(c->lane, rounds ? LaneId::xla : LaneId::splash);
      EXPECT_TRUE(choose(f, plan, m, {}, LaneId::splash).ok());
      const GateRow wins = winning_row(LaneId::splash, f, m);
      EXPECT_EQ(choose(f, plan, m, {{wins}})->lane, c->lane);
      if (!rounds) continue;
      EXPECT_EQ(reason_of(*c, LaneId::splash),
                "its artifact is of f32, whose factors a TPU rounds to bf16: "
                "it runs where it is asked for by name");
      // A CPU plugin that the artifact is for rounds nothing.
      Machine both = m;
      both.plugins.push_back({"xla_cpu_pjrt", "cpu", 4});
      f.call.artifact_platforms = {"cpu"};
      EXPECT_EQ(reason_of(*choose(f, plan, both), LaneId::splash),
                "an artifact runs where it is asked for by name");
    }
  }
}

// By the rules and by name.
TEST(ArtifactChoice, GoesByTheLongestRowOfTiles) {
  const Machine tpu{"A CPU", 8,    {Isa::portable},
                    true,    true, {{"libtpu", "tpu", 4}}};
  const RequestFeatures f = causal_of(LaneId::splash);
  for (const int64_t widest : {0, 64, 65}) {
    const PlanFacts plan = {4160, 2100, widest};
    const auto c = choose(f, plan, tpu);
    ASSERT_TRUE(c.ok()) << c.error().message;
    const auto forced = choose(f, plan, tpu, {}, LaneId::splash);
    EXPECT_EQ(forced.ok(), widest <= 64);
    EXPECT_EQ(c->lane, widest <= 64 ? LaneId::splash : LaneId::xla);
    if (widest <= 64) continue;
    const std::string why = "its artifact has 64 tiles a row, not 65";
    EXPECT_EQ(reason_of(*c, LaneId::splash), why);
    EXPECT_TRUE(forced.error().message.ends_with("splash: " + why));
  }
}

// An artifact runs only on the platforms that it was exported for. The rules
// choose it if the machine's device is one; by name it runs if any plugin is.
TEST(ArtifactChoice, GoesByItsPlatforms) {
  const std::vector<Isa> isas = {Isa::portable};
  const MachinePlugin cpu = {"xla_cpu_pjrt", "cpu", 4};
  const MachinePlugin tpu = {"libtpu", "tpu", 4};
  const MachinePlugin gpu = {"/opt/cuda.so", "cuda", 1};
  const MachinePlugin compiler = {"libtpu", "tpu", 0};
  struct Row {
    std::vector<MachinePlugin> plugins;
    std::vector<std::string> platforms;
    bool chosen;
    const char* plugin;  // by name; null: it cannot run, and `why`
    const char* why;
  };
  const Row rows[] = {
      {{tpu}, {"cpu"}, false, nullptr, "its artifact is for cpu, not tpu"},
      {{gpu}, {"cpu"}, false, nullptr, "its artifact is for cpu, not cuda"},
      {{gpu},
       {"tpu", "cpu"},
       false,
       nullptr,
       "its artifact is for tpu, cpu, not cuda"},
      {{cpu}, {"tpu"}, false, nullptr, "its artifact is for tpu, not cpu"},
      {{cpu, gpu},
       {"tpu"},
       false,
       nullptr,
       "its artifact is for tpu, not cuda"},
      {{tpu}, {}, false, nullptr, "its artifact is for no platform, not tpu"},
      {{compiler},
       {"tpu"},
       false,
       nullptr,
       "it needs a PJRT plugin with a device, which was not found (make tpu "
       "brings one)"},
      {{tpu}, {"tpu"}, true, "libtpu", nullptr},
      {{cpu, tpu}, {"cpu", "tpu"}, true, "libtpu", nullptr},
      {{gpu}, {"cuda"}, true, "/opt/cuda.so", nullptr},
      {{cpu, tpu}, {"cpu"}, false, "xla_cpu_pjrt", nullptr},
      {{cpu}, {"cpu"}, false, "xla_cpu_pjrt", nullptr},
  };
  for (const LaneId lane : {LaneId::splash, LaneId::jax_bridge}) {
    for (const Row& row : rows) {
      const Machine m = {"A CPU", 8, isas, true, true, row.plugins};
      RequestFeatures f = causal_of(lane);
      f.call.artifact_platforms = row.platforms;
      const auto c = choose(f, {64, 36}, m);
      ASSERT_TRUE(c.ok()) << c.error().message;
      EXPECT_EQ(c->lane == lane, row.chosen);
      const auto named = choose(f, {64, 36}, m, {}, lane);
      ASSERT_EQ(named.ok(), row.plugin != nullptr);
      if (named) {
        EXPECT_EQ(named->plugin, row.plugin);
      } else {
        EXPECT_EQ(reason_of(*c, lane), row.why);
      }
      if (m.only_cpu()) continue;
      // A row of a gate does not choose it on another platform either.
      const GateRow wins = winning_row(lane, f, m);
      EXPECT_EQ(choose(f, {64, 36}, m, {{wins}})->lane == lane, row.chosen);
    }
  }
}

// JAX's attention takes a mask of any words, and picks by head.
TEST(ArtifactChoice, JaxsAttentionTakesEveryWordByName) {
  const Machine cpu = {"A CPU", 8,    {Isa::portable},
                       true,    true, {{"xla_cpu_pjrt", "cpu", 4}}};
  CallFeatures call;
  call.bridge_artifact = true;
  call.artifact_platforms = {"cpu"};
  const AttentionShape shape = {8, 2, 64, 64, {}, 0};
  Request request;
  request.q_len = request.kv_len = 512;
  for (const char* mask :
       {"tree", "causal | same(h)", "causal & blocks(64)",
        "routed(top=4, block=64)", "(tree | same(a)) & blocks(4)"}) {
    for (const int64_t heads : {1, 2, 8}) {
      request.masks = {*parse_mask(mask)};
      Facts present;
      present.picks = Picks{{}, heads, 4};
      const auto f = features_of(request, present, shape, call);
      const auto named = choose(f, {4, 3}, cpu, {}, LaneId::jax_bridge);
      ASSERT_TRUE(named.ok()) << mask << ": " << named.error().message;
      EXPECT_EQ(named->lane, LaneId::jax_bridge);
      const auto c = choose(f, {4, 3}, cpu);
      ASSERT_TRUE(c.ok()) << c.error().message;
      EXPECT_EQ(reason_of(*c, LaneId::jax_bridge),
                "an artifact runs where it is asked for by name");
    }
  }
  for (const char* mask : {"causal", "causal & blocks(64)"}) {
    request.masks = {*parse_mask(mask), *parse_mask("window(5, 0)")};
    Facts present;
    present.picks = Picks{{}, 8, 4};
    const auto c =
        choose(features_of(request, present, shape, call), {4, 3}, cpu);
    ASSERT_TRUE(c.ok()) << c.error().message;
    EXPECT_EQ(reason_of(*c, LaneId::jax_bridge),
              "it has one mask for all heads")
        << mask;
  }
}

// `tessera choose` says beforehand that the lane needs a lowering reason.
TEST(ArtifactChoice, ASmallBlockNeedsALoweringReason) {
  const Machine tpu{"A CPU", 8,    {Isa::portable},
                    true,    true, {{"libtpu", "tpu", 4, "v6e"}}};
  for (const int64_t side : {128, 256}) {
    Request request;
    request.masks = {*parse_mask("causal")};
    request.q_len = request.kv_len = 4096;
    request.tile = {side, side};
    RequestFeatures f = causal_of(LaneId::splash);
    f.tile = request.tile;
    f.call.splash->block_q = f.call.splash->block_kv = side;
    const auto c = choose(f, {1024, 528}, tpu);
    ASSERT_TRUE(c.ok()) << c.error().message;
    EXPECT_EQ(c->lane, LaneId::splash);
    const auto needs = reason_needed(*c, request, tpu);
    EXPECT_EQ(needs.value_or(""),
              side == 256 ? ""
                          : "[splash] a tile below the granule of v6e, "
                            "256x256, must come with a lowering reason, found "
                            "none for 128x128, which pays 4 times its work");
  }
}

// Splash's kernel of the tests was exported for the CPU and for two tiles a
// row; causal needs three.
TEST(ArtifactChoice, TheGoldenSplash) {
  const std::string path = "tests/golden/bridge/splash";
  SessionOptions options;
  options.artifact = BridgeArtifact{
      "", *parse_bridge_spec(*read_file(path + ".json", 1 << 20))};
  const CallFeatures call = call_features({}, options);
  Request request;
  request.q_len = 256;
  request.kv_len = 384;
  request.tile = {64, 128};
  const auto told = [&](const char* mask, const std::string& platform) {
    request.masks = {*parse_mask(mask)};
    const auto plan = plan::make_plan(request, {});
    EXPECT_TRUE(plan.ok());
    const Machine m = {"A CPU", 8,    {Isa::portable},
                       true,    true, {{"some", platform, 4}}};
    const auto f = features_of(request, {}, {4, 2, 16, 16, {}, 0}, call);
    const auto c = choose(f, plan_facts(*plan), m);
    EXPECT_TRUE(c.ok()) << c.error().message;
    EXPECT_EQ(c->lane, platform == "cpu" ? LaneId::cpu : LaneId::xla);
    if (platform != "cpu") {
      EXPECT_EQ(c->method, XlaMethod::dense);
    }
    return reason_of(*c, LaneId::splash);
  };
  EXPECT_EQ(told("causal", "cpu"), "its artifact has 2 tiles a row, not 3");
  EXPECT_EQ(told("causal & chunk(64)", "cpu"),
            "an artifact runs where it is asked for by name");
  EXPECT_EQ(told("causal", "tpu"), "its artifact is for cpu, not tpu");
  EXPECT_EQ(told("causal", "cuda"), "its artifact is for cpu, not cuda");
}

}  // namespace
}  // namespace tessera::run
