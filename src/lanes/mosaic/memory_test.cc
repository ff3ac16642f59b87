// lanes/mosaic/memory_test.cc: the vendor's compiler takes kernels up to the
// planner's budgets of vector and scalar memory, and none beyond what a core
// has.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "lanes/mosaic/backward.h"
#include "lanes/mosaic/forward.h"
#include "lanes/mosaic/kernel.h"
#include "lanes/mosaic/parts.h"
#include "lanes/mosaic/program.h"
#include "lanes/mosaic/vector_memory.h"
#include "tessera/machine.h"
#include "tests/mosaic_compiler.h"
#include "tests/random_case.h"

namespace tessera::mosaic {
namespace {

using Class = testing::KernelClass;

// A backward kernel that fills the planner's budget: its dims and heads.
struct Edge {
  int64_t dim, v_dim, heads_per_pass = 1, kv_heads = 4;
  Dtype dtype = Dtype::bf16;
};

class MosaicMemory : public testing::MosaicCompiler {
 protected:
  void check_vector_budget(const Edge& e);
  void check_forward_budget();
  void check_scalar_budget(const Chip& chip);
};

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

// Sets as many tokens as fit the planner's budget for a backward kernel.
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

void MosaicMemory::check_vector_budget(const Edge& e) {
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

// A forward kernel needs more besides its scratch: tiles and spills.
void MosaicMemory::check_forward_budget() {
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

// Up to the planner's budget the compiler has room for its own data: with one
// head a pass, with groups that take turns, with several heads, at other dims,
// in float32; and forward.
TEST_F(MosaicMemory, TheVectorBudgetIsThere) {
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

// The kernels' share of each core's memory fits there, and more than all of the
// memory does not.
TEST_F(MosaicMemory, VectorMemoryIsAsTheVendorSays) {
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
    s.core_bytes = s.core_bytes / 5 * 8;  // a kernel's share is then all
    ASSERT_NO_FATAL_FAILURE(fill_vector_memory(s));
    s.q_len = s.kv_len += 1024;
    auto over = compile(backward_program(s));
    ASSERT_FALSE(over.ok()) << chip.name;
    EXPECT_NE(over.error().message.find("memory space vmem"), std::string::npos)
        << over.error().message;
  }
}

// Rows of tiles whose dQ does not fit, or fits with fewer heads together, come
// in chunks that fill the planner's budget: alone, in turns, with steps in
// pages.
TEST_F(MosaicMemory, RowsBeyondVectorMemoryComeInChunks) {
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

// A chunk of more rows than all of a core's memory holds is refused.
TEST_F(MosaicMemory, ChunksTakeWhatTheVendorSays) {
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

// Checks both sides of the limit, for batches whose arrays take one granule or
// two.
void MosaicMemory::check_scalar_budget(const Chip& chip) {
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

// Bytes of an array in vector memory, as in libtpu's dumps.
TEST(MosaicVectorBytes, LinesComeEightAtATimeOrFewer) {
  const auto bytes = [](Element e, std::vector<int64_t> shape) {
    return vector_bytes({in_vmem("a", e, std::move(shape))});
  };
  EXPECT_EQ(bytes(Element::i32, {12, 128}), 16 * 512);
  EXPECT_EQ(bytes(Element::i32, {6, 128}), 8 * 512);
  EXPECT_EQ(bytes(Element::i32, {3, 128}), 4 * 512);
  EXPECT_EQ(bytes(Element::f32, {4, 256}), 4 * 1024);
  EXPECT_EQ(bytes(Element::f32, {2, 1, 256}), 2 * 1024);
  EXPECT_EQ(bytes(Element::f32, {3, 64, 100}), 3 * 64 * 512);
  EXPECT_EQ(bytes(Element::bf16, {16, 256, 256}), 2 << 20);
}

TEST_F(MosaicMemory, TheScalarBudgetIsTheVendors) {
  for (const Chip& chip : chips()) check_scalar_budget(chip);
}

}  // namespace
}  // namespace tessera::mosaic
