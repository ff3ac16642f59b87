// fit/fit_test.cc: tests the arithmetic of budgets: sums, layouts, remedies.
#include "tessera/fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <tuple>

namespace tessera {
namespace {

FitCall call_of(const char* mask, int64_t tokens, int64_t heads,
                bool backward = true) {
  FitCall out;
  out.request.masks = {*parse_mask(mask)};
  out.request.q_len = out.request.kv_len = tokens;
  out.call.shape.heads = heads;
  out.call.shape.kv_heads = heads;
  out.call.shape.head_dim = out.call.shape.v_head_dim = 128;
  out.call.dtype = Dtype::bf16;
  out.call.backward = backward;
  return out;
}

int64_t part(const std::vector<MemoryPart>& parts, std::string_view name) {
  for (const MemoryPart& p : parts) {
    if (p.name == name) return p.bytes;
  }
  return -1;
}

TEST(DeviceBytes, TilesPadWhatTheyCannotTurn) {
  const auto bytes = [](Dtype dtype, std::vector<int64_t> dims) {
    return device_bytes(dtype, dims);
  };
  EXPECT_EQ(bytes(Dtype::bf16, {1, 8, 4096, 128}), 2 * 8 * 4096 * 128);
  // Tokens go along the lanes where that pads less.
  EXPECT_EQ(bytes(Dtype::bf16, {5, 5, 256, 96}), 2 * 25 * 256 * 96);
  EXPECT_EQ(bytes(Dtype::bf16, {3, 136}), 2 * 4 * 256);
  EXPECT_EQ(bytes(Dtype::i32, {5, 4096}), 4 * 8 * 4096);
  EXPECT_EQ(bytes(Dtype::i32, {1, 4}), 512);
  EXPECT_EQ(bytes(Dtype::f32, {1, 8, 1, 300}), 4 * 8 * 384);
  EXPECT_EQ(bytes(Dtype::i32, {}), 512);
  EXPECT_EQ(bytes(Dtype::i32, {5000}), 4 * 5120);
  EXPECT_EQ(bytes(Dtype::i32, {136}), 4 * 256);
  EXPECT_EQ(bytes(Dtype::bf16, {8}), 512);
}

TEST(Budget, NamesEveryPartAndAddsThemUp) {
  auto asked = call_of("causal & documents", 4096, 8);
  asked.call.shape.kv_heads = 2;
  const std::vector<int32_t> ids(1);
  asked.present.doc_ids = ids;
  const auto budget = make_budget(asked);
  ASSERT_TRUE(budget.ok()) << budget.error().message;
  const PassMemory& f = budget->forward;
  const int64_t queries = 2 * 8 * 4096 * 128;
  const int64_t keys = queries / 4;
  EXPECT_EQ(part(f.arguments, "q"), queries);
  EXPECT_EQ(part(f.arguments, "k"), keys);
  EXPECT_EQ(part(f.arguments, "k_documents"), 4 * 4096);
  EXPECT_EQ(part(f.arguments, "steps"), 4 * 256);
  EXPECT_EQ(part(f.outputs, "lse"), 4 * 8 * 4096);
  EXPECT_EQ(f.total(),
            f.argument_bytes() + f.output_bytes() + f.scratch_bytes());
  const PassMemory& b = *budget->backward;
  EXPECT_EQ(part(b.outputs, "dq"), queries);
  EXPECT_EQ(part(b.scratch, "sum of dk"), 2 * keys);
  EXPECT_EQ(budget->residuals(), 2 * queries + 2 * keys + 4 * 8 * 4096);
  EXPECT_EQ(&budget->largest(), &b);
  EXPECT_EQ(budget->needed(), b.total() + kProgramRoom);
  EXPECT_TRUE(budget->fits());
  EXPECT_TRUE(check_fits(asked, *budget).ok());
}

// check_room() refuses only calls that no compiler could make fit.
TEST(Budget, WhatIsBeyondRoomIsRefusedBeforeACompile) {
  auto asked = call_of("causal", 131072, 64);
  asked.request.tile = {512, 512};
  asked.chip = "v5e";
  for (int64_t tokens = 16384; tokens <= 131072; tokens += 16384) {
    asked.request.q_len = asked.request.kv_len = tokens;
    const auto budget = make_budget(asked);
    ASSERT_TRUE(budget.ok()) << budget.error().message;
    for (const PassMemory* pass : {&budget->forward, &*budget->backward}) {
      EXPECT_LE(pass->least(), pass->total());
      EXPECT_GE(pass->least(), pass->argument_bytes());
    }
    EXPECT_FALSE(budget->fits() && budget->beyond_room());
    const auto told = check_room(asked);
    EXPECT_EQ(told.ok(), !budget->beyond_room()) << tokens;
    if (!told) {
      EXPECT_EQ(told.error().message,
                check_fits(asked, *budget).error().message);
    }
  }
  EXPECT_FALSE(check_room(asked).ok());
  // A call without a budget is not refused here; the lane refuses it.
  asked.call.shape.heads = 0;
  EXPECT_TRUE(check_room(asked).ok());
}

// The dense program holds all scores of one batch row at a time, of all heads.
TEST(Budget, DenseTakesItsScoresAndChunkedAColumnOfThem) {
  auto asked = call_of("causal & documents", 32768, 8, false);
  asked.request.batch = 4;
  asked.method = XlaMethod::dense;
  const int64_t scores = int64_t{4} * 8 * 32768 * 32768;
  const auto dense = make_budget(asked);
  ASSERT_TRUE(dense.ok()) << dense.error().message;
  EXPECT_GE(part(dense->forward.scratch, "a tile's scores and rows"), scores);
  EXPECT_GT(dense->forward.least(), scores / 2);
  EXPECT_FALSE(dense->fits());
  EXPECT_EQ(part(dense->forward.arguments, "steps"), -1);
  asked.method = XlaMethod::chunked;
  const auto chunked = make_budget(asked);
  ASSERT_TRUE(chunked.ok()) << chunked.error().message;
  EXPECT_TRUE(chunked->fits());
  EXPECT_LT(chunked->forward.scratch_bytes(), scores / 32);
  asked.method = XlaMethod::worklist;
  EXPECT_LT(make_budget(asked)->forward.scratch_bytes(), scores / 1024);
}

// A caller that computes blocks again keeps none of q, k, v, out and lse of
// other layers. Its own call reads them all the same, so nothing shrinks here.
TEST(Budget, RecomputeSavesTheResidualsOfOtherLayersButParameters) {
  for (const LaneId lane : {LaneId::xla, LaneId::mosaic}) {
    for (const bool sinks : {false, true}) {
      auto asked = call_of("causal", 4096, 8);
      asked.lane = lane;
      asked.call.shape.kv_heads = 2;
      asked.call.sink_logits = sinks;
      const auto budget = make_budget(asked);
      ASSERT_TRUE(budget.ok()) << budget.error().message;
      const int64_t queries = 2 * 8 * 4096 * 128, keys = queries / 4;
      EXPECT_EQ(budget->recompute_saves(),
                2 * queries + 2 * keys + 4 * 8 * 4096);
      const int64_t parameters =
          sinks ? part(budget->backward->arguments, "sink_logits") : 0;
      EXPECT_EQ(budget->recompute_saves(), budget->residuals() - parameters);
      EXPECT_EQ(parameters > 0, sinks);
      asked.call.backward = false;
      EXPECT_EQ(make_budget(asked)->recompute_saves(), 0);
    }
  }
}

// Float32 sums are the results themselves; a forward call has no residuals.
TEST(Budget, WhatIsNotThereIsNotCounted) {
  auto asked = call_of("causal", 4096, 8);
  asked.call.dtype = Dtype::f32;
  EXPECT_EQ(part(make_budget(asked)->backward->scratch, "sum of dk"), -1);
  asked.call.backward = false;
  const auto budget = make_budget(asked);
  EXPECT_FALSE(budget->backward);
  EXPECT_EQ(budget->residuals(), 0);
}

// The next larger share of `whole` that a device can have on a mesh.
int64_t next_share(int64_t share, int64_t whole) {
  do {
    ++share;
  } while (whole % share != 0);
  return share;
}

// One more than each remedy allows does not fit, so the remedy is the largest.
TEST(WhatFits, EachIsTheLargestOfItsKind) {
  std::mt19937 random(3);
  int tried = 0;
  for (int i = 0; i < 60; ++i) {
    auto asked = call_of(random() % 2 ? "causal" : "full",
                         int64_t{16384} << random() % 5, 8 << random() % 4);
    asked.request.tile = {512, 512};
    asked.request.batch = 1 + static_cast<int64_t>(random() % 9);
    asked.request.ceilings.max_steps = 1 << 20;
    asked.chip = std::string(chips()[random() % chips().size()].name);
    const auto budget = make_budget(asked);
    ASSERT_TRUE(budget.ok()) << budget.error().message;
    const auto told = check_fits(asked, *budget);
    EXPECT_EQ(told.ok(), budget->fits());
    if (budget->fits()) continue;
    EXPECT_NE(
        told.error().message.find(asked.call.backward ? "backward" : "forward"),
        std::string::npos);
    for (const Remedy& r : what_fits(asked)) {
      SCOPED_TRACE(r.change + " " + std::to_string(r.fits));
      EXPECT_LT(r.fits, r.found);
      EXPECT_LE(r.needed, budget->chip.room);
      const auto needed = [&](int64_t size) {
        FitCall with = asked;
        if (r.change.starts_with("q_len and")) {
          with.request.q_len = with.request.kv_len = size;
        } else if (r.change.starts_with("q_len alone")) {
          with.request.q_len = size;
        } else if (r.change.starts_with("heads")) {
          with.call.shape.heads = with.call.shape.kv_heads = size;
        } else {
          with.request.batch = size;
        }
        return make_budget(with)->needed();
      };
      const bool tokens = r.change.starts_with("q_len");
      const int64_t next = tokens ? r.fits + 512 : next_share(r.fits, r.found);
      EXPECT_EQ(needed(r.fits), r.needed);
      if (next < r.found) {
        EXPECT_GT(needed(next), budget->chip.room);
      }
      if (!tokens) {
        EXPECT_EQ(r.found % r.fits, 0);
      }
      ++tried;
    }
  }
  EXPECT_GT(tried, 20);
}

// 5 of 64 heads would fit a device, but no mesh gives a device 5: a KV head and
// its query heads stay together, and an axis divides what it splits.
TEST(WhatFits, WhatIsLeftOfAChipIsWhatAMeshCanLeave) {
  const auto asked_of = [](int64_t kv_heads, int64_t group, int64_t batch) {
    auto out = call_of("causal", 1 << 20, kv_heads * group);
    out.call.shape.kv_heads = kv_heads;
    out.request.tile = {512, 512};
    out.request.batch = batch;
    out.chip = "v5e";
    return out;
  };
  const auto fits = [&](int64_t heads) {
    return make_budget(asked_of(heads, 1, 1))->fits();
  };
  const auto remedies = what_fits(asked_of(64, 1, 1));
  const auto of_heads = std::ranges::find_if(
      remedies, [](const Remedy& r) { return r.change.starts_with("heads"); });
  ASSERT_NE(of_heads, remedies.end());
  EXPECT_EQ(of_heads->found, 64);
  EXPECT_EQ(of_heads->fits, 4);
  EXPECT_TRUE(fits(5));
  EXPECT_FALSE(fits(8));

  for (const auto& [kv_heads, group, batch] :
       {std::tuple(24, 1, 1), {9, 1, 6}, {7, 2, 1}, {1, 8, 6}, {2, 1, 9}}) {
    const auto asked = asked_of(kv_heads, group, batch);
    const auto budget = make_budget(asked);
    ASSERT_TRUE(budget.ok()) << budget.error().message;
    ASSERT_FALSE(budget->fits());
    for (const Remedy& r : what_fits(asked)) {
      if (r.change.starts_with("q_len")) continue;
      const bool heads = r.change.starts_with("heads");
      const int64_t whole = heads ? kv_heads : batch;
      const int64_t unit = heads ? group : 1;
      EXPECT_EQ(r.found, whole * unit);
      ASSERT_EQ(r.fits % unit, 0) << r.change;
      EXPECT_EQ(whole % (r.fits / unit), 0) << r.change << " " << r.fits;
    }
  }
}

// A third program of lane mosaic: it reads no values and writes no out, and
// takes tiles' bits where the passes have ids.
TEST(Budget, SinkTelemetryIsAProgramOfItsOwn) {
  auto asked = call_of("causal & documents", 4096, 8);
  asked.call.shape.kv_heads = 2;
  asked.call.sink_logits = true;
  const std::vector<int32_t> ids(1);
  asked.present.doc_ids = ids;
  asked.lane = LaneId::mosaic;
  asked.mosaic.numbers = Numbers::any;
  const auto passes = make_budget(asked);
  ASSERT_TRUE(passes.ok()) << passes.error().message;
  EXPECT_FALSE(passes->sinks.has_value());
  asked.call.sink_telemetry = true;
  const auto budget = make_budget(asked);
  ASSERT_TRUE(budget.ok()) << budget.error().message;
  EXPECT_EQ(budget->forward.total(), passes->forward.total());
  EXPECT_EQ(budget->backward->total(), passes->backward->total());
  EXPECT_EQ(budget->residuals(), passes->residuals());
  ASSERT_TRUE(budget->sinks.has_value());
  const PassMemory& s = *budget->sinks;
  const int64_t queries = 2 * 8 * 4096 * 128, rows = 4 * 8 * 4096;
  EXPECT_EQ(part(s.arguments, "q"), queries);
  EXPECT_EQ(part(s.arguments, "k"), queries / 4);
  for (const char* none : {"v", "sink_logits", "k_documents"}) {
    EXPECT_EQ(part(s.arguments, none), -1) << none;
  }
  EXPECT_GT(part(s.arguments, "bits"), 0);
  EXPECT_EQ(part(s.outputs, "lse"), rows);
  EXPECT_EQ(part(s.outputs, "entropy"), rows);
  EXPECT_TRUE(s.vector_memory.has_value());
  for (const MemoryPart& p : s.arguments) EXPECT_FALSE(p.residual) << p.name;
  EXPECT_EQ(budget->largest().total(),
            std::max(s.total(), passes->largest().total()));
  // The program of sink telemetry of lane xla is not counted.
  asked.lane = LaneId::xla;
  EXPECT_FALSE(make_budget(asked)->sinks.has_value());
}

// A budget asks for a lowering reason in the same cases as the lanes.
TEST(Budget, ATileBelowTheGranuleHasAReason) {
  const auto error = [](const FitCall& asked) {
    const auto budget = make_budget(asked);
    return budget ? std::string("none") : budget.error().message;
  };
  for (const LaneId lane : {LaneId::xla, LaneId::mosaic}) {
    auto asked = call_of("causal", 4096, 8);
    asked.lane = lane;
    asked.request.tile = {256, 128};
    EXPECT_EQ(error(asked), "[" + std::string(to_string(lane)) +
                                "] a tile below the granule of v6e, 256x256, "
                                "must come with a lowering reason, found none "
                                "for 256x128, which pays 2 times its work");
    asked.mosaic.lowering_reason = "documents of 90 tokens";
    EXPECT_EQ(error(asked), "none");
    asked.request.tile = {256, 256};
    EXPECT_NE(error(asked).find("found one for 256x256"), std::string::npos);
  }
  auto asked = call_of("causal", 4096, 8);
  asked.request.tile = {128, 128};
  asked.chip = "v5e";
  EXPECT_EQ(error(asked), "none");
}

TEST(Budget, BadCallsAreRefused) {
  const auto error = [](const FitCall& asked) {
    const auto budget = make_budget(asked);
    return budget ? std::string("none") : budget.error().message;
  };
  auto asked = call_of("causal", 4096, 8);
  asked.chip = "v9";
  EXPECT_EQ(error(asked),
            "[fit] a chip must be one of v4, v5e, v5p, v6e, tpu7x, found 'v9'");
  asked = call_of("causal", 4096, 8);
  asked.lane = LaneId::cpu;
  EXPECT_EQ(error(asked), "[fit] a budget is of lane xla or mosaic, found cpu");
  asked = call_of("causal", 4096, 8, false);
  asked.call.dlse = true;
  EXPECT_NE(error(asked).find("goes with backward"), std::string::npos);
  asked = call_of("blocks(64)", 4096, 8);
  EXPECT_EQ(error(asked), "[fit] picks must have heads and slots, found none");
  asked = call_of("causal", int64_t{1} << 30, 8);
  asked.request.ceilings.max_steps = 1;
  EXPECT_NE(error(asked).find("16384 tile rows or columns"), std::string::npos);
  asked = call_of("causal", int64_t{1} << 20, 1 << 16);
  asked.request.batch = 1 << 20;
  asked.request.ceilings.max_steps = 1;
  EXPECT_NE(error(asked).find("an array must be at most"), std::string::npos)
      << error(asked);
  asked = call_of("causal", 4096, 0);
  EXPECT_NE(error(asked).find("heads"), std::string::npos);
  // The size of scores is checked too.
  for (const XlaMethod method : {XlaMethod::dense, XlaMethod::chunked}) {
    const bool dense = method == XlaMethod::dense;
    asked = call_of("causal", dense ? 1 << 20 : 66'000'000, 1 << 16, false);
    asked.request.tile = {4096, 4096};
    asked.call.shape.head_dim = asked.call.shape.v_head_dim = 8;
    asked.method = method;
    EXPECT_TRUE(error(asked).starts_with("[fit] an array must be at most"))
        << error(asked);
  }
}

}  // namespace
}  // namespace tessera
