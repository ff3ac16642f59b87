// fit/fit_compile_test.cc: compares budgets with what the vendor's compiler
// reports of the compiled program. Skipped without libtpu.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "pjrt/compile.h"
#include "tessera/fit.h"
#include "tests/lowering.h"
#include "tests/plugins.h"
#include "tests/random_case.h"

namespace tessera {
namespace {

class FitCompile : public ::testing::Test {
 protected:
  void SetUp() override {
    auto plugin = testing::real_plugin("libtpu");
    if (testing::is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
    ASSERT_TRUE(plugin.ok()) << plugin.error().message;
    plugin_ = *plugin;
  }

  Result<pjrt::MemoryStats> compile(std::string_view target,
                                    const std::string& program) {
    auto topology = pjrt::make_topology(*plugin_, std::string(target));
    if (!topology) return topology.error();
    auto executable = pjrt::compile(*topology, program);
    if (!executable) return executable.error();
    return executable->memory();
  }

  // Arguments and results must be equal to the byte. Our total must not be
  // below libtpu's, nor above 110% of it apart from what the core may hold.
  void compare(const FitCall& asked) {
    const auto budget = make_budget(asked);
    ASSERT_TRUE(budget.ok()) << budget.error().message;
    for (const bool backward : {false, true}) {
      if (backward && !budget->backward) continue;
      const PassMemory& ours = backward ? *budget->backward : budget->forward;
      const auto program = program_text(asked, backward);
      ASSERT_TRUE(program.ok()) << program.error().message;
      const auto theirs = compile(budget->chip.target, *program);
      ASSERT_TRUE(theirs.ok()) << theirs.error().message;
      EXPECT_EQ(ours.argument_bytes(), theirs->argument);
      EXPECT_EQ(ours.output_bytes(), theirs->output);
      EXPECT_EQ(theirs->alias, 0);
      EXPECT_LE(theirs->code, kProgramRoom);
      const int64_t total =
          theirs->argument + theirs->output + theirs->temporary;
      EXPECT_GE(ours.total(), total);
      EXPECT_LE(ours.least(), total);
      if (asked.lane == LaneId::xla || ours.scratch.empty()) {
        EXPECT_LE(static_cast<double>(ours.total() - ours.core_bytes()),
                  1.1 * static_cast<double>(total));
      }
      if (asked.lane == LaneId::mosaic) {  // exact apart from counters
        int64_t counters = 0;
        for (const MemoryPart& part : ours.scratch) {
          if (part.name == "counters") counters += part.bytes;
        }
        EXPECT_LE(ours.total() - counters, total);
        EXPECT_EQ(ours.scratch.empty(), theirs->temporary == 0);
      }
    }
  }

  const pjrt::Plugin* plugin_ = nullptr;
};

const char* word(Dtype dtype) {
  switch (dtype) {
    case Dtype::i32:
      return "i32";
    case Dtype::bf16:
      return "bf16";
    case Dtype::f16:
      return "f16";
    default:
      return "f32";
  }
}

// A program that returns its arguments.
std::string mirror(
    const std::vector<std::pair<Dtype, std::vector<int64_t>>>& arrays) {
  std::string in, types, names;
  for (size_t i = 0; i < arrays.size(); ++i) {
    std::string type = "tensor<";
    for (const int64_t d : arrays[i].second) type += fmt::format("{}x", d);
    type += fmt::format("{}>", word(arrays[i].first));
    const char* comma = i == 0 ? "" : ", ";
    in += fmt::format("{}%a{}: {}", comma, i, type);
    types += comma + type;
    names += fmt::format("{}%a{}", comma, i);
  }
  return fmt::format(
      "module @mirror {{ func.func public @main({}) -> ({}) {{ return {} : {} "
      "}} }}",
      in, types, names, types);
}

TEST_F(FitCompile, ArraysOfAnyShapeTakeWhatTheirTilesTake) {
  constexpr Dtype kDtypes[] = {Dtype::i32, Dtype::bf16, Dtype::f16, Dtype::f32};
  constexpr int64_t kDims[] = {1,  2,  3,  5,   7,   8,   9,   12,
                               16, 40, 72, 128, 136, 192, 256, 1000};
  for (const Chip& chip : chips()) {
    std::mt19937 random(7);
    std::vector<std::pair<Dtype, std::vector<int64_t>>> arrays;
    int64_t bytes = 0;
    for (int i = 0; i < 60; ++i) {
      std::vector<int64_t> dims(random() % 5);
      for (int64_t& d : dims) d = kDims[random() % std::size(kDims)];
      arrays.emplace_back(kDtypes[random() % 4], dims);
      int64_t plain = 4;
      for (const int64_t d : dims) plain *= d;
      if (plain > 1 << 26) {
        arrays.pop_back();
        continue;
      }
      bytes += device_bytes(arrays.back().first, dims);
    }
    const auto told = compile(chip.target, mirror(arrays));
    ASSERT_TRUE(told.ok()) << told.error().message;
    EXPECT_EQ(told->argument, bytes) << chip.name;
    EXPECT_GE(told->output, bytes);
    EXPECT_LE(told->output, bytes + 512);
  }
}

// Arrays a megabyte below the table's room compile; larger ones do not.
TEST_F(FitCompile, TheRoomOfEachChipIsTheCompilers) {
  for (const Chip& chip : chips()) {
    const auto doubled = [&](int64_t room) {
      const int64_t words = room / 8 / 1024 * 1024;
      return compile(chip.target,
                     fmt::format("module @double {{ func.func public @main(%a: "
                                 "tensor<{0}xf32>) -> tensor<{0}xf32> {{\n"
                                 "%b = stablehlo.add %a, %a : tensor<{0}xf32>\n"
                                 "return %b : tensor<{0}xf32> }} }}",
                                 words));
    };
    const auto fits = doubled(chip.room - (1 << 20));
    EXPECT_TRUE(fits.ok()) << chip.name << ": " << fits.error().message;
    const auto beyond = doubled(chip.room + 8192);
    ASSERT_FALSE(beyond.ok()) << chip.name;
    EXPECT_NE(beyond.error().message.find("RESOURCE_EXHAUSTED"),
              std::string::npos)
        << beyond.error().message;
  }
}

struct Case {
  const char* mask;
  int64_t batch, heads, kv_heads, tokens, dim;
  Dtype dtype;
  Tile tile;
  const char* chip;
  XlaMethod method = XlaMethod::worklist;
};

FitCall call_of(const Case& c) {
  static constexpr int32_t kId[] = {0};
  FitCall out;
  out.chip = c.chip;
  out.method = c.method;
  out.request.masks = {*parse_mask(c.mask)};
  out.request.batch = c.batch;
  out.request.q_len = out.request.kv_len = c.tokens;
  out.request.tile = c.tile;
  out.call.shape.heads = c.heads;
  out.call.shape.kv_heads = c.kv_heads;
  out.call.shape.head_dim = out.call.shape.v_head_dim = c.dim;
  out.call.dtype = c.dtype;
  out.call.backward = true;
  out.mosaic.lowering_reason = testing::lowering_reason(c.tile);
  const Names& names = out.request.masks[0].names;
  if (names.documents || names.segments) out.present.doc_ids = kId;
  return out;
}

TEST_F(FitCompile, XlaPrograms) {
  const Case cases[] = {
      {"causal & documents",
       1,
       8,
       8,
       8192,
       128,
       Dtype::bf16,
       {256, 256},
       "v6e"},
      {"window(1023, 0)", 2, 8, 2, 4096, 72, Dtype::bf16, {256, 128}, "v6e"},
      {"segments & sink(2)", 3, 4, 4, 6000, 64, Dtype::f16, {128, 256}, "v6e"},
      {"causal", 1, 4, 1, 4096, 128, Dtype::f32, {512, 256}, "v5e"},
      // Sums too large for a core's memory.
      {"causal", 1, 16, 16, 32768, 128, Dtype::bf16, {256, 256}, "v5p"},
      // Without a list: a column of scores at a time, or all of them.
      {"causal & documents",
       2,
       8,
       2,
       4096,
       128,
       Dtype::bf16,
       {256, 256},
       "v6e",
       XlaMethod::chunked},
      {"full",
       1,
       8,
       8,
       4096,
       128,
       Dtype::bf16,
       {256, 256},
       "v6e",
       XlaMethod::dense},
      {"causal & documents",
       2,
       8,
       2,
       2048,
       64,
       Dtype::f32,
       {256, 256},
       "v5e",
       XlaMethod::dense},
  };
  for (size_t i = 0; i < std::size(cases); ++i) {
    if (!testing::takes_case(i, std::size(cases))) continue;
    const Case& c = cases[i];
    SCOPED_TRACE(fmt::format("{} {} tokens on {}", c.mask, c.tokens, c.chip));
    FitCall asked = call_of(c);
    asked.call.sink_logits = c.batch == 2;
    asked.call.dlse = c.batch == 3;
    compare(asked);
  }
}

// Sums of half a gigabyte: nothing large can lie in the core.
TEST_F(FitCompile, LongSequencesAreWithinTenPercentWhole) {
  const FitCall asked =
      call_of({"causal", 1, 8, 8, 131072, 128, Dtype::bf16, {512, 512}, "v6e"});
  const auto budget = make_budget(asked);
  ASSERT_TRUE(budget.ok());
  const auto theirs = compile("v6e:1x1", *program_text(asked, true));
  ASSERT_TRUE(theirs.ok()) << theirs.error().message;
  const int64_t total = theirs->argument + theirs->output + theirs->temporary;
  EXPECT_GE(budget->backward->total(), total);
  EXPECT_LE(static_cast<double>(budget->backward->total()),
            1.01 * static_cast<double>(total));
}

TEST_F(FitCompile, MosaicPrograms) {
  std::mt19937 generator(11);
  const auto random = [&] { return static_cast<int64_t>(generator()); };
  constexpr const char* kMasks[] = {"causal", "causal & documents",
                                    "window(1023, 0) & segments", "full"};
  constexpr int64_t kDims[] = {128, 64, 192, 256};
  constexpr size_t kCases = 8;
  for (size_t i = 0; i < kCases; ++i) {
    Case c = {kMasks[random() % 4],
              1 + random() % 3,
              0,
              0,
              512 + random() % 8000,
              kDims[i % 4],
              i < 4 ? Dtype::f32 : Dtype::bf16,
              {128 << random() % 3, 128 << random() % 3},
              "v6e"};
    c.kv_heads = int64_t{1} << random() % 3;
    c.heads = c.kv_heads << random() % 3;
    if (!testing::takes_case(i, kCases)) continue;
    SCOPED_TRACE(fmt::format(
        "{} batch {} heads {}/{} tokens {} dim {} tile {}x{}", c.mask, c.batch,
        c.heads, c.kv_heads, c.tokens, c.dim, c.tile.q, c.tile.kv));
    FitCall asked = call_of(c);
    asked.lane = LaneId::mosaic;
    asked.mosaic = {1, 1, RowSum::exact};
    asked.mosaic.lowering_reason = testing::lowering_reason(c.tile);
    asked.call.dlse = i % 2 == 0;
    asked.call.sink_logits = i % 3 == 0;
    compare(asked);
  }
}

// No other lane has a budget for sink telemetry.
TEST_F(FitCompile, MosaicProgramsOfSinkTelemetry) {
  const Case cases[] = {
      {"causal & documents", 2, 8, 2, 3000, 128, Dtype::bf16, {256, 256}, "v4"},
      {"causal & sink(4)", 1, 4, 4, 5000, 64, Dtype::bf16, {512, 512}, "v6e"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.chip);
    FitCall asked = call_of(c);
    asked.lane = LaneId::mosaic;
    asked.call.sink_telemetry = true;
    const auto budget = make_budget(asked);
    ASSERT_TRUE(budget.ok()) << budget.error().message;
    ASSERT_TRUE(budget->sinks.has_value());
    const auto program = sinks_text(asked);
    ASSERT_TRUE(program.ok()) << program.error().message;
    const auto theirs = compile(budget->chip.target, *program);
    ASSERT_TRUE(theirs.ok()) << theirs.error().message;
    EXPECT_EQ(budget->sinks->argument_bytes(), theirs->argument);
    EXPECT_EQ(budget->sinks->output_bytes(), theirs->output);
    EXPECT_EQ(budget->sinks->scratch_bytes(), theirs->temporary);
    EXPECT_EQ(theirs->alias, 0);
    EXPECT_LE(theirs->code, kProgramRoom);
  }
}

// Other chips have other cores and tables of results.
TEST_F(FitCompile, MosaicProgramsOfEveryOtherChip) {
  const Case cases[] = {
      {"causal & documents", 2, 8, 2, 3000, 128, Dtype::bf16, {256, 256}, "v4"},
      {"window(1023, 0) & segments",
       1,
       4,
       4,
       5000,
       64,
       Dtype::bf16,
       {256, 512},
       "v5e"},
      {"causal", 3, 4, 4, 2500, 192, Dtype::bf16, {512, 256}, "v5p"},
      {"full", 1, 8, 4, 4000, 128, Dtype::f32, {256, 256}, "tpu7x"},
  };
  for (size_t i = 0; i < std::size(cases); ++i) {
    if (!testing::takes_case(i, std::size(cases))) continue;
    SCOPED_TRACE(cases[i].chip);
    FitCall asked = call_of(cases[i]);
    asked.lane = LaneId::mosaic;
    asked.mosaic = {1, 1, RowSum::exact};
    asked.call.sink_logits = i == 0;
    asked.call.dlse = i % 2 == 1;
    compare(asked);
  }
}

// Steps that do not fit scalar memory, and queries whose dQ does not fit vector
// memory; the caller sets no option for either.
TEST_F(FitCompile, StepsBeyondScalarMemory) {
  for (const auto& [batch, tokens] :
       {std::pair(1, 1 << 18), std::pair(4, 1 << 17)}) {
    FitCall asked = call_of(
        {"causal", batch, 1, 1, tokens, 128, Dtype::bf16, {512, 512}, "v6e"});
    asked.lane = LaneId::mosaic;
    asked.mosaic = {1, 1, RowSum::exact};
    compare(asked);
  }
}

// Residuals take the same bytes on the device as libtpu gives them.
TEST_F(FitCompile, Residuals) {
  const FitCall asked =
      call_of({"causal", 2, 6, 3, 1000, 72, Dtype::bf16, {128, 128}, "v6e"});
  const auto told = compile("v6e:1x1", mirror({{Dtype::bf16, {2, 6, 1024, 72}},
                                               {Dtype::bf16, {2, 3, 1024, 72}},
                                               {Dtype::bf16, {2, 3, 1024, 72}},
                                               {Dtype::bf16, {2, 6, 1024, 72}},
                                               {Dtype::f32, {2, 6, 1024}}}));
  ASSERT_TRUE(told.ok()) << told.error().message;
  EXPECT_EQ(make_budget(asked)->residuals(), told->argument);
}

}  // namespace
}  // namespace tessera
