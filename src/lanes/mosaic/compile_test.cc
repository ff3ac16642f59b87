// lanes/mosaic/compile_test.cc: the vendor's compiler takes the kernel, up to
// the planner's budget of scalar memory and not beyond it. Skipped without
// libtpu.
#include "pjrt/compile.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "lanes/mosaic/backward.h"
#include "lanes/mosaic/forward.h"
#include "lanes/mosaic/kernel.h"
#include "lanes/mosaic/parts.h"
#include "lanes/mosaic/program.h"
#include "lanes/mosaic/settings.h"
#include "lanes/mosaic/vector_memory.h"
#include "plan/make_plan.h"
#include "tessera/machine.h"
#include "tessera/mosaic.h"
#include "tests/lowering.h"
#include "tests/plugins.h"
#include "tests/random_case.h"

namespace tessera::mosaic {
namespace {

class MosaicCompile : public ::testing::Test {
 protected:
  void SetUp() override {
    auto plugin = testing::real_plugin("libtpu");
    if (testing::is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
    take_target("v6e:1x1");
  }
  void take_target(std::string_view target) {
    auto plugin = testing::real_plugin("libtpu");
    ASSERT_TRUE(plugin.ok()) << plugin.error().message;
    auto topology = pjrt::make_topology(**plugin, std::string(target));
    ASSERT_TRUE(topology.ok()) << topology.error().message;
    topology_.emplace(std::move(*topology));
  }
  Result<pjrt::Executable> compile(const std::string& program) {
    return pjrt::compile(*topology_, program);
  }

  void check(const struct Class& c);
  void check_vector_budget(const struct Edge& e);
  void check_forward_budget();
  void check_scalar_budget(const Chip& chip);

  std::optional<pjrt::Topology> topology_;
  size_t checks_ = 0;
};

Request request_of(const char* mask, int64_t tokens, Tile tile) {
  Request r;
  r.masks = {*parse_mask(mask)};
  r.q_len = r.kv_len = tokens;
  r.tile = tile;
  return r;
}

AttentionShape shape_of(int64_t heads, int64_t kv_heads) {
  AttentionShape s;
  s.heads = heads;
  s.kv_heads = kv_heads;
  s.head_dim = s.v_head_dim = 128;
  return s;
}

struct Class {
  const char* mask;
  int64_t tokens;
  Tile tile;
  MosaicOptions options;
  int64_t heads, kv_heads;
  bool backward = false, dlse = false;
  double softcap = 0;
  int64_t dim = 128, v_dim = 128;
  bool sinks = false;
  Dtype dtype = Dtype::bf16;
  bool telemetry = false;
  std::string_view target = "v6e:1x1";
};

AttentionCall call_of(const Class& c) {
  AttentionCall out;
  out.shape = shape_of(c.heads, c.kv_heads);
  out.shape.head_dim = c.dim;
  out.shape.v_head_dim = c.v_dim;
  out.shape.softcap = c.softcap;
  out.dtype = c.dtype;
  out.sink_logits = c.sinks;
  out.backward = c.backward;
  out.dlse = c.dlse;
  out.sink_telemetry = c.telemetry;
  return out;
}

void take_what_fits(Class& c, const Chip& chip) {
  c.target = chip.target;
  const ChosenSetting fit =
      fit_setting({{c.tile, c.options, 0}, ""}, {.tile = true},
                  request_of(c.mask, c.tokens, c.tile), {}, call_of(c),
                  std::string(chip.target));
  EXPECT_TRUE(fit.chosen_by.empty() || chip.name == "v4") << fit.chosen_by;
  c.tile = fit.setting.tile;
  c.options = fit.setting.options;
}

void MosaicCompile::check(const Class& c) {
  // No test has fewer than three.
  if (!testing::takes_case(checks_++, 3)) return;
  Facts present;
  present.doc_ids = present.prefix_lengths = Ints{};
  present.tree_enter = present.tree_leave = Ints{};
  present.same_ids[0] = present.same_ids[1] = Ints{};
  Request request = request_of(c.mask, c.tokens, c.tile);
  if (request.masks.front().names.picks) {  // those of each head of keys
    present.picks = Picks{};
    present.picks->heads = c.kv_heads;
  }
  MosaicOptions options = c.options;
  options.lowering_reason = testing::lowering_reason(c.tile);
  auto kernel = make_mosaic_kernel(request, present, call_of(c),
                                   std::string(c.target), options);
  ASSERT_TRUE(kernel.ok()) << c.target << ", " << c.mask << ", dim " << c.dim
                           << ": " << kernel.error().message;
  auto made = compile(kernel->program_text);
  ASSERT_TRUE(made.ok()) << c.target << ", " << c.mask << ", dims " << c.dim
                         << " and " << c.v_dim << ": " << made.error().message;
  auto memory = made->memory();
  ASSERT_TRUE(memory.ok());
  EXPECT_GT(memory->code, 0);
  const int64_t width = byte_width(c.dtype);
  const int64_t queries = kernel->q_len * c.heads * width;
  const int64_t keys = kernel->kv_len * c.kv_heads * width;
  if (c.telemetry) {
    EXPECT_GE(memory->output, 2 * 4 * kernel->q_len * c.heads);
    EXPECT_GE(memory->argument, (queries + keys) * c.dim);
    return;
  }
  const int64_t both = c.dim + c.v_dim;
  EXPECT_GE(memory->output,
            c.backward ? queries * c.dim + keys * both : queries * c.v_dim);
  EXPECT_GE(memory->argument,
            queries * (c.backward ? both + c.v_dim : c.dim) + keys * both);
}

TEST_F(MosaicCompile, SinkTelemetry) {
  for (Class c : {Class{"causal & documents", 4096, kMosaicTile, {4, 4}, 8, 8},
                  Class{"causal", 2048, {512, 512}, {1, 4}, 8, 2},
                  Class{"causal | chunk(96)", 1000, {256, 256}, {2, 14}, 6, 3},
                  Class{"tree & prefix", 700, {128, 128}, {3, 1}, 1, 1}}) {
    c.telemetry = true;
    check(c);
    c.dim = c.v_dim = 64;
    c.softcap = 30;
    check(c);
    c.dim = c.v_dim = 256;
    c.dtype = Dtype::f32;
    check(c);
  }
}

TEST_F(MosaicCompile, EveryClassOfKernel) {
  for (const Class& c : {
           Class{"causal & documents", 4096, kMosaicTile, {2, 4}, 8, 8},
           Class{"causal & documents",
                 4096,
                 {512, 512},
                 {2, 4, RowSum::rounded},
                 4,
                 4},
           Class{"full", 100, {128, 128}, {1, 1, RowSum::rounded}, 1, 1},
           Class{"full", 100, {128, 128}, {1, 1}, 1, 1},
           Class{"window(100, 7) & segments", 1000, {256, 128}, {3, 2}, 6, 2},
           Class{"causal", 2048, {1024, 256}, {1, 14}, 4, 4},
           Class{"causal & window(-1, 5)", 1024, {128, 1024}, {1, 3}, 2, 1},
           Class{"causal & documents", 4096, kMosaicBackwardTile,
                 kMosaicBackward, 8, 8, true, true},
           Class{"full", 100, {128, 128}, {1, 1}, 1, 1, true},
           Class{"window(100, 7) & segments",
                 1000,
                 {256, 128},
                 {3, 2},
                 6,
                 2,
                 true,
                 true},
           Class{"causal & window(-1, 5)",
                 1024,
                 {128, 1024},
                 {1, 14},
                 2,
                 1,
                 true},
           // Bitmaps: with words of 32 bits and of 16.
           Class{"documents | sink(4)", 4096, kMosaicTile, {4, 4}, 4, 4},
           Class{"causal & blocks(64)", 1000, {128, 384}, {2, 3}, 6, 2},
           Class{"tree & !window(9, 0)", 2048, {256, 128}, {1, 1}, 2, 2},
           Class{"causal | same(a) | same(b)", 2048, {256, 256}, {2, 2}, 4, 2},
           Class{"(causal | same(a)) & documents",
                 1000,
                 {256, 128},
                 {1, 2},
                 4,
                 2,
                 true},
           Class{"chunk(100) | prefix",
                 4096,
                 kMosaicBackwardTile,
                 {2, 1},
                 8,
                 8,
                 true,
                 true},
           Class{"causal & blocks(64)", 1000, {256, 128}, {3, 2}, 6, 2, true},
           Class{"causal & documents",
                 4096,
                 {1024, 1024},
                 {2, 4},
                 8,
                 4,
                 false,
                 false,
                 30},
           Class{"causal & window(4095, 0)",
                 4096,
                 {512, 1024},
                 {2, 1},
                 8,
                 4,
                 true,
                 true,
                 50},
           Class{"prefix | causal",
                 1000,
                 {256, 128},
                 {3, 2},
                 6,
                 2,
                 true,
                 false,
                 30},
       }) {
    ASSERT_NO_FATAL_FAILURE(check(c));
  }
}

TEST_F(MosaicCompile, EveryHeadDim) {
  for (const auto& [dim, v_dim] :
       {std::pair(64, 64), std::pair(192, 128), std::pair(256, 256)}) {
    for (const bool backward : {false, true}) {
      Class c{"causal & documents",
              4096,
              kMosaicBackwardTile,
              {1, 2, backward ? RowSum::exact : RowSum::rounded},
              4,
              2,
              backward,
              backward};
      c.dim = dim;
      c.v_dim = v_dim;
      ASSERT_NO_FATAL_FAILURE(check(c));
      // By bitmaps, small.
      c.mask = "documents | sink(4)";
      c.tokens = 1000;
      c.tile = {256, 128};
      c.options = {3, 2};
      c.softcap = 30;
      ASSERT_NO_FATAL_FAILURE(check(c));
    }
  }
}

TEST_F(MosaicCompile, SinkLogits) {
  for (const bool backward : {false, true}) {
    Class c{"causal & documents",
            4096,
            kMosaicBackwardTile,
            {1, 1},
            4,
            2,
            backward};
    c.sinks = true;
    ASSERT_NO_FATAL_FAILURE(check(c));
    // By bitmaps, small, with one head; rounded forward.
    c = {"documents | sink(4)",
         1000,
         {256, 128},
         {3, 2},
         1,
         1,
         backward,
         backward,
         30,
         192,
         128,
         true};
    if (!backward) c.options.row_sum = RowSum::rounded;
    ASSERT_NO_FATAL_FAILURE(check(c));
  }
}

// Tiles as they lie and turned, of both types; by bitmaps with all that a
// kernel may have, which here comes in chunks.
TEST_F(MosaicCompile, AnyValues) {
  for (const bool backward : {false, true}) {
    for (const auto& [dim, v_dim] :
         {std::pair(128, 128), std::pair(64, 128), std::pair(192, 64)}) {
      Class c{"causal & documents",
              4096,
              {512, 512},
              {1, 2},
              8,
              4,
              backward,
              backward,
              0,
              dim,
              v_dim};
      c.options.numbers = Numbers::any;
      if (dim == 192) c.dtype = Dtype::f32;
      ASSERT_NO_FATAL_FAILURE(check(c));
    }
    Class c{"documents | sink(4)",
            1000,
            {256, 128},
            {3, 2},
            2,
            1,
            backward,
            backward,
            30};
    c.sinks = true;
    c.options.numbers = Numbers::any;
    if (backward) c.options.query_chunk = 512;
    ASSERT_NO_FATAL_FAILURE(check(c));
  }
}

// By bounds, and by bitmaps with all that a kernel may have.
TEST_F(MosaicCompile, Float32) {
  for (const bool backward : {false, true}) {
    Class c{"causal & documents", 4096, {512, 256}, {1, 2}, 8, 4, backward};
    c.dtype = Dtype::f32;
    ASSERT_NO_FATAL_FAILURE(check(c));
    c.mask = "documents | sink(4)";
    c.tokens = 1000;
    c.tile = {256, 128};
    c.options = {2, 2};
    c.softcap = 30;
    c.sinks = true;
    c.dlse = backward;
    for (const auto& [dim, v_dim] :
         {std::pair(64, 64), std::pair(192, 128), std::pair(256, 256)}) {
      c.dim = dim;
      c.v_dim = v_dim;
      ASSERT_NO_FATAL_FAILURE(check(c));
    }
  }
}

// Every compare of floats that the writer can write, of vectors and scalars.
TEST_F(MosaicCompile, ComparesOfFloats) {
  const std::vector<int64_t> shape = {8, 128};
  const std::vector<Argument> arrays = {in_smem("scalars", 8, Element::f32),
                                        in_hbm("x", Element::f32, shape),
                                        in_hbm("out", Element::f32, shape),
                                        in_hbm("again", Element::f32, shape),
                                        in_vmem("tile", Element::f32, shape),
                                        semaphores("copies", {})};
  std::vector<Argument> arguments = arrays;
  arguments.insert(arguments.begin(), {"batch_row", scalar(Element::i32)});
  Writer w(arguments);
  const Value& done = w.argument("copies");
  const Value& tile = w.argument("tile");
  w.start_copy(w.argument("x"), tile, done);
  w.wait_copy(done, tile);
  for (const Compare how :
       {Compare::equal, Compare::not_equal, Compare::less,
        Compare::less_or_equal, Compare::greater, Compare::greater_or_equal}) {
    const Value x = w.load(tile);
    const Value zero = w.splat(w.real(0), shape);
    const Value holds = w.compare(how, x, zero);
    const Value chosen = w.select(holds, x, w.splat(w.real(1), shape));
    const Value scalar_x = w.load_scalar(w.argument("scalars"), w.constant(3));
    w.if_then(w.compare(how, scalar_x, w.real(0)),
              [&] { w.store(chosen, tile); });
  }
  for (const char* out : {"out", "again"}) {  // a program has a few
    w.start_copy(tile, w.argument(out), done);
    w.wait_copy(done, tile);
  }
  auto made = compile(program("compares", arrays, 2, w.kernel("compares", 1),
                              mosaic::vector_rooms(128 << 20).program));
  EXPECT_TRUE(made.ok()) << made.error().message;
}

std::string forward_program(const mosaic::KernelShape& s) {
  return mosaic::program("tessera_forward", mosaic::forward_arguments(s),
                         mosaic::forward_outputs(s), mosaic::forward_kernel(s),
                         mosaic::vector_rooms(s.core_bytes).program);
}
std::string backward_program(const mosaic::KernelShape& s) {
  return mosaic::program("tessera_backward", mosaic::backward_arguments(s),
                         mosaic::backward_outputs(s),
                         mosaic::backward_kernel(s),
                         mosaic::vector_rooms(s.core_bytes).program);
}

// As many tokens as the planner's budget of a backward kernel holds.
void fill_vector_memory(mosaic::KernelShape& s) {
  const auto fits = [&](int64_t tiles) {
    s.q_len = s.kv_len = tiles * 512;
    return mosaic::vector_bytes(mosaic::backward_arguments(s)) <=
           mosaic::vector_rooms(s.core_bytes).backward;
  };
  int64_t tiles = 1;
  while (fits(tiles + 1)) ++tiles;
  ASSERT_TRUE(fits(tiles));
}

// A backward kernel that fills the planner's budget: its dims and heads.
struct Edge {
  int64_t dim, v_dim, heads_per_pass = 1, kv_heads = 4;
  Dtype dtype = Dtype::bf16;
};

void MosaicCompile::check_vector_budget(const Edge& e) {
  mosaic::KernelShape s;
  s.heads = 4;
  s.kv_heads = e.kv_heads;
  s.heads_per_pass = e.heads_per_pass;
  s.head_dim = e.dim;
  s.v_head_dim = e.v_dim;
  s.dtype = e.dtype;
  s.block_q = s.block_kv = 512;
  s.tiles_per_pass = s.fetch_ahead = 1;
  s.steps = 9000;
  s.has_high = true;
  ASSERT_NO_FATAL_FAILURE(fill_vector_memory(s));
  const auto arguments = mosaic::backward_arguments(s);
  EXPECT_GT(mosaic::vector_bytes(arguments), 77 << 20) << e.dim;
  auto made = compile(backward_program(s));
  EXPECT_TRUE(made.ok()) << e.dim << ", " << e.heads_per_pass << ": "
                         << made.error().message;
}

// Forward a kernel has more of its own: tiles, and what spills.
void MosaicCompile::check_forward_budget() {
  Request r = request_of("causal & documents", 4096, {1024, 1024});
  Facts present;
  present.doc_ids = Ints{};
  AttentionShape shape = shape_of(2, 2);
  shape.head_dim = shape.v_head_dim = 256;
  auto kernel = make_mosaic_kernel(
      r, present, {.shape = shape, .dtype = Dtype::bf16}, "v6e:1x1", {3, 6});
  ASSERT_TRUE(kernel.ok()) << kernel.error().message;
  EXPECT_GT(kernel->vector_bytes, 40 << 20);
  auto made = compile(kernel->program_text);
  EXPECT_TRUE(made.ok()) << made.error().message;
}

// Up to the planner's budget the compiler has room for its own: of one head a
// pass, with groups that take turns, of several, at other dims, of float32; and
// forward.
TEST_F(MosaicCompile, TheVectorBudgetIsThere) {
  const Edge edges[] = {{128, 128},
                        {128, 128, 4},
                        {128, 128, 2, 1},
                        {64, 64, 4, 2},
                        {192, 128},
                        {256, 256, 2},
                        {128, 128, 1, 4, Dtype::f32},
                        {256, 256, 1, 4, Dtype::f32}};
  const size_t all = std::size(edges) + 1;
  for (size_t i = 0; i < all; ++i) {
    if (!testing::takes_case(i, all)) continue;
    if (i == std::size(edges)) {
      ASSERT_NO_FATAL_FAILURE(check_forward_budget());
    } else {
      ASSERT_NO_FATAL_FAILURE(check_vector_budget(edges[i]));
    }
  }
}

// The main classes for other chips, at the tile and the passes by default, or
// what a memory leaves of them.
TEST_F(MosaicCompile, OtherChips) {
  Class forward{"causal & documents", 4096, kMosaicTile, {4, 4}, 8, 2};
  Class bitmaps{"causal | chunk(96)", 1000, {256, 256}, {2, 2}, 6, 3};
  bitmaps.softcap = 30;
  bitmaps.sinks = true;
  Class backward{"causal & window(999, 0)", 4096, {512, 512}, {1, 1}, 4, 4};
  backward.backward = backward.dlse = true;
  Class exact{"causal", 1000, {256, 256}, {1, 1}, 2, 2};
  exact.dtype = Dtype::f32;
  for (const Chip& chip : chips()) {
    if (chip.name == "v6e") continue;
    take_target(chip.target);
    for (Class c : {forward, bitmaps, backward, exact}) {
      take_what_fits(c, chip);
      check(c);
    }
  }
}

// What the kernels may have of each core fits there, and more than all of it
// does not.
TEST_F(MosaicCompile, VectorMemoryIsAsTheVendorSays) {
  for (const Chip& chip : chips()) {
    take_target(chip.target);
    mosaic::KernelShape s;
    s.core_bytes = find_target(chip.name)->vector_bytes;
    s.heads = s.kv_heads = 4;
    s.block_q = s.block_kv = 256;
    s.tiles_per_pass = s.fetch_ahead = 1;
    s.steps = 64;
    s.has_high = true;
    ASSERT_NO_FATAL_FAILURE(fill_vector_memory(s));
    auto fits = compile(backward_program(s));
    EXPECT_TRUE(fits.ok()) << chip.name << ": " << fits.error().message;
    s.core_bytes = s.core_bytes / 5 * 8;  // a kernel's share is all there is
    ASSERT_NO_FATAL_FAILURE(fill_vector_memory(s));
    s.q_len = s.kv_len += 1024;
    auto over = compile(backward_program(s));
    ASSERT_FALSE(over.ok()) << chip.name;
    EXPECT_NE(over.error().message.find("memory space vmem"), std::string::npos)
        << over.error().message;
  }
}

// Rows of tiles whose dQ does not fit, or of fewer heads together, come in
// chunks that fill the planner's budget: alone, in turns, with steps in pages.
TEST_F(MosaicCompile, RowsBeyondVectorMemoryComeInChunks) {
  struct Row {
    std::string_view target;
    const char* mask;
    int64_t tokens, heads, kv_heads, dim, v_dim;
    Dtype dtype = Dtype::bf16;
  };
  constexpr Row rows[] = {
      {"v6e:1x1", "causal & documents", 1 << 19, 8, 8, 128, 128},
      {"v6e:1x1", "causal & documents", 1 << 16, 8, 8, 128, 128},
      {"v6e:1x1", "causal & documents", 98304, 8, 8, 128, 128},
      {"v6e:1x1", "causal & documents", 1 << 17, 8, 8, 128, 128},
      {"v5p:2x2x1", "causal & documents", 1 << 16, 8, 8, 128, 128},
      {"v6e:1x1", "causal | prefix", 1 << 18, 6, 1, 64, 64},
      {"v6e:1x1", "causal & documents", 1 << 17, 8, 1, 256, 192, Dtype::f32},
      {"v4:2x2x1", "causal & window(999, 0)", 1 << 16, 8, 2, 128, 128}};
  for (size_t i = 0; i < std::size(rows); ++i) {
    if (!testing::takes_case(i, std::size(rows))) continue;
    const Row& row = rows[i];
    SCOPED_TRACE(fmt::format("{} {} {}", row.target, row.mask, row.tokens));
    take_target(row.target);
    Class c{row.mask,        row.tokens, kMosaicBackwardTile,
            kMosaicBackward, row.heads,  row.kv_heads};
    c.backward = c.dlse = c.sinks = true;
    c.dim = row.dim;
    c.v_dim = row.v_dim;
    c.dtype = row.dtype;
    Facts present;
    present.doc_ids = present.prefix_lengths = Ints{};
    auto kernel =
        make_mosaic_kernel(request_of(c.mask, c.tokens, c.tile), present,
                           call_of(c), std::string(row.target), c.options);
    ASSERT_TRUE(kernel.ok()) << kernel.error().message;
    EXPECT_GT(kernel->query_chunk, 0);
    auto made = compile(kernel->program_text);
    EXPECT_TRUE(made.ok()) << made.error().message;
  }
}

// More rows a chunk than all of a core's memory holds are too many.
TEST_F(MosaicCompile, ChunksTakeWhatTheVendorSays) {
  mosaic::KernelShape s;
  s.heads = 4;
  s.kv_heads = 1;
  s.q_len = s.kv_len = 1 << 19;
  s.block_q = s.block_kv = 512;
  s.tiles_per_pass = s.fetch_ahead = 1;
  s.steps = 9000;
  s.has_high = true;
  const auto fill = [&](int64_t room) {
    s.chunk_rows = 1;
    while (mosaic::vector_bytes(mosaic::backward_arguments(s)) <= room) {
      ++s.chunk_rows;
    }
  };
  fill(mosaic::vector_rooms(s.core_bytes).backward);
  --s.chunk_rows;
  auto fits = compile(backward_program(s));
  EXPECT_TRUE(fits.ok()) << fits.error().message;
  fill(s.core_bytes);
  auto over = compile(backward_program(s));
  ASSERT_FALSE(over.ok());
  EXPECT_NE(over.error().message.find("memory space vmem"), std::string::npos)
      << over.error().message;
}

// On both sides of the edge, for batches whose arrays take one granule or two.
void MosaicCompile::check_scalar_budget(const Chip& chip) {
  take_target(chip.target);
  const Target target = *find_target(chip.name);
  for (const int64_t batch : {1, 200}) {
    if (batch > 1 && chip.name != "v6e") continue;
    mosaic::KernelShape s;
    s.batch = batch;
    s.core_bytes = target.vector_bytes;
    s.q_len = s.kv_len = 512;
    s.tiles_per_pass = 1;
    s.has_high = true;
    s.steps = target.scalar_words -
              scalar_words(target, {batch + 1, batch + mosaic::kBoundsHead});
    auto fits = compile(forward_program(s));
    EXPECT_TRUE(fits.ok()) << chip.name << ": " << fits.error().message;
    s.steps += 1;
    auto over = compile(forward_program(s));
    ASSERT_FALSE(over.ok());
    EXPECT_NE(over.error().message.find("smem"), std::string::npos)
        << over.error().message;
  }
}

TEST_F(MosaicCompile, TheScalarBudgetIsTheVendors) {
  for (const Chip& chip : chips()) check_scalar_budget(chip);
}

// Batches of other documents, counts and lengths: compiled once, by its key.
TEST_F(MosaicCompile, OneCompileServesEveryBatchOfAContract) {
  std::mt19937_64 random(3);
  std::map<std::string, pjrt::Executable> compiled;
  int compiles = 0;
  for (int batch = 0; batch < 100; ++batch) {
    const bool backward = batch % 2 == 1;
    const auto tokens = static_cast<int64_t>(1600 + random() % 449);
    Request r = request_of("causal & documents", tokens, {256, 256});
    r.ceilings = {64, 8};
    std::vector<int32_t> ids(static_cast<size_t>(tokens));
    int32_t id = 0;
    for (int32_t& out : ids) out = id += random() % 300 == 0;
    Facts facts;
    facts.doc_ids = Ints(ids);
    auto kernel = make_mosaic_kernel(
        r, facts,
        {.shape = shape_of(2, 1), .dtype = Dtype::bf16, .backward = backward},
        "v6e:1x1", {2, 4});
    ASSERT_TRUE(kernel.ok()) << kernel.error().message;
    auto plan = plan::make_plan(r, facts);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    // The batch's own contract, made from its plan, is the kernel's.
    auto own = make_contract(*BorrowedBatch::make(r, facts));
    ASSERT_TRUE(own.ok()) << own.error().message;
    EXPECT_EQ(own->key, kernel->plan.key);
    ASSERT_TRUE(
        make_mosaic_arrays(*BorrowedBatch::make(r, facts), *kernel).ok());
    if (compiled.contains(kernel->contract.key)) continue;
    auto made = compile(kernel->program_text);
    ASSERT_TRUE(made.ok()) << made.error().message;
    ++compiles;
    compiled.emplace(kernel->contract.key, std::move(*made));
  }
  EXPECT_EQ(compiles, 2);  // of each direction one
}

}  // namespace
}  // namespace tessera::mosaic
