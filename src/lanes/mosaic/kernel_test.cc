// lanes/mosaic/kernel_test.cc: a kernel's sizes, its key, what it refuses, and
// its text.
#include "lanes/mosaic/kernel.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "base/base64.h"
#include "base/files.h"
#include "lanes/mosaic/backward.h"
#include "lanes/mosaic/forward.h"
#include "lanes/mosaic/parts.h"
#include "lanes/mosaic/program.h"
#include "lanes/mosaic/vector_memory.h"
#include "tessera/mosaic.h"
#include "tests/lowering.h"

namespace tessera::mosaic {
namespace {

constexpr MosaicOptions kRounded = {4, 4, RowSum::rounded};

Request request_of(const char* mask, int64_t tokens = 4096) {
  Request r;
  r.masks = {*parse_mask(mask)};
  r.q_len = r.kv_len = tokens;
  r.tile = kMosaicTile;
  return r;
}

AttentionShape shape_of(int64_t heads = 8) {
  AttentionShape s;
  s.heads = s.kv_heads = heads;
  s.head_dim = s.v_head_dim = 128;
  return s;
}

Result<MosaicKernel> make(const Request& request,
                          const AttentionShape& shape = shape_of(),
                          Dtype dtype = Dtype::bf16,
                          const std::string& target = "v6e:1x1",
                          MosaicOptions options = {}) {
  options.lowering_reason = testing::lowering_reason(request.tile);
  Facts present;
  if (request.masks.front().names.documents) present.doc_ids = Ints{};
  return make_mosaic_kernel(request, present, {shape, dtype}, target, options);
}

Result<MosaicKernel> make_backward(
    const Request& request, const AttentionShape& shape = shape_of(),
    const MosaicOptions& options = kMosaicBackward, bool dlse = false) {
  Facts present;
  if (request.masks.front().names.documents) present.doc_ids = Ints{};
  return make_mosaic_kernel(
      request, present,
      {.shape = shape, .dtype = Dtype::bf16, .backward = true, .dlse = dlse},
      "v6e:1x1", options);
}

std::string error_of(const Result<MosaicKernel>& kernel) {
  return kernel ? "no error" : kernel.error().message;
}

TEST(MosaicKernel, HasRoomForTheWorstCaseOfTheLengths) {
  auto kernel = make(request_of("causal & documents", 4000));
  ASSERT_TRUE(kernel.ok()) << kernel.error().message;
  EXPECT_EQ(kernel->q_len, 4096);
  EXPECT_EQ(kernel->steps, 8 * 16);
  EXPECT_EQ(kernel->scalar_words, 8 * 16 + 2 + 3);

  Request odd = request_of("causal & documents", 700);
  odd.batch = 5;  // bucket 6
  auto filled = make(odd, shape_of(), Dtype::bf16, "v6e", {3, 4});
  ASSERT_TRUE(filled.ok()) << filled.error().message;
  // 768 tokens: 2 rows of 512 and 3 columns, already whole passes.
  EXPECT_EQ(filled->q_len, 1024);
  EXPECT_EQ(filled->kv_len, 768);
  EXPECT_EQ(filled->steps, 6 * 2 * 3);
  odd.ceilings.max_steps = 20;
  // 20 steps, and 2 of filler for each of 6 x 2 rows; never more than without a
  // ceiling.
  EXPECT_EQ(make(odd, shape_of(), Dtype::bf16, "v6e", {3, 4})->steps, 36);
  odd.ceilings.max_steps = 7;
  EXPECT_EQ(make(odd, shape_of(), Dtype::bf16, "v6e", {3, 4})->steps, 31);
}

// Programs with room for different numbers of steps have different keys, though
// plan contract and pages are the same.
TEST(MosaicKernel, RoomForStepsIsATermOfTheContract) {
  const auto differ = [](const Result<MosaicKernel>& a,
                         const Result<MosaicKernel>& b) {
    ASSERT_TRUE(a.ok()) << a.error().message;
    ASSERT_TRUE(b.ok()) << b.error().message;
    EXPECT_EQ(a->plan.key, b->plan.key);
    EXPECT_EQ(a->page, b->page);
    EXPECT_NE(a->steps, b->steps);
    EXPECT_NE(a->contract.key, b->contract.key);
  };
  Request r = request_of("full", 640);
  r.batch = 3;
  r.tile = {128, 128};
  const auto open = make(r, shape_of(), Dtype::bf16, "v6e", {1, 4});
  // The bucket of 3 x 5 x 5 steps; the bucketed lengths have 6 tiles.
  r.ceilings.max_steps = 96;
  differ(open, make(r, shape_of(), Dtype::bf16, "v6e", {1, 4}));

  r = request_of("causal", 16384);
  r.tile = {256, 256};
  r.ceilings.max_steps = 1800;
  const auto in_pages = [&](int64_t steps) {
    MosaicOptions options = {1, 4};
    options.page_steps = steps;
    return make(r, shape_of(), Dtype::bf16, "v6e", options);
  };
  differ(in_pages(1000), in_pages(900));
}

// Facts of a batch are in neither text nor key; everything that the text
// depends on is in the key.
TEST(MosaicKernel, OneTextAContract) {
  const MosaicKernel base = *make(request_of("causal & documents"));
  // Lengths in one bucket, and bounds in one class, share a key and a text.
  EXPECT_EQ(make(request_of("documents & causal", 3500))->contract.key,
            base.contract.key);
  EXPECT_EQ(make(request_of("documents & causal", 3500))->program_text,
            base.program_text);
  const MosaicKernel window = *make(request_of("window(1000, 0)"));
  EXPECT_EQ(make(request_of("window(900, 0)"))->program_text,
            window.program_text);
  EXPECT_EQ(make(request_of("window(900, 0)"))->contract.key,
            window.contract.key);

  std::set<std::string> keys = {base.contract.key, window.contract.key};
  std::set<std::string> programs = {base.program_text, window.program_text};
  auto differs = [&](const Result<MosaicKernel>& kernel, const char* what) {
    ASSERT_TRUE(kernel.ok()) << kernel.error().message;
    EXPECT_TRUE(keys.insert(kernel->contract.key).second) << what;
    EXPECT_TRUE(programs.insert(kernel->program_text).second) << what;
  };
  const Request r = request_of("causal & documents");
  differs(make(request_of("documents")), "mask");
  differs(make(request_of("causal & documents", 5000)), "lengths");
  differs(make(r, shape_of(4)), "heads");
  AttentionShape shape = shape_of();
  shape.kv_heads = 2;
  differs(make(r, shape), "kv heads");
  shape = shape_of();
  shape.scale = 0.5;
  differs(make(r, shape), "scale");
  differs(make(r, shape_of(), Dtype::bf16, "v6e:1x1", {2, 4}), "tiles a pass");
  differs(make(r, shape_of(), Dtype::bf16, "v6e:1x1", {4, 5}), "fetch ahead");
  differs(make(r, shape_of(), Dtype::bf16, "v6e:1x1", kRounded), "row sum");
  MosaicOptions any;
  any.numbers = Numbers::any;
  differs(make(r, shape_of(), Dtype::bf16, "v6e:1x1", any), "values");
  Request tile = r;
  tile.tile = {256, 256};
  differs(make(tile), "tile");
  Request batch = r;
  batch.batch = 2;
  differs(make(batch), "batch");
  Request ceiling = r;
  ceiling.ceilings.max_steps = 64;
  differs(make(ceiling), "steps");
  // The same text for another device is another key.
  EXPECT_TRUE(
      keys.insert(make(r, shape_of(), Dtype::bf16, "v6e:2x2")->contract.key)
          .second);
}

// Finds the heads of a pass one by one and compares with the rule.
TEST(MosaicKernel, TakesHeadsTogether) {
  for (int64_t heads = 1; heads <= 40; ++heads) {
    for (int64_t group = 1; group <= heads; ++group) {
      if (heads % group != 0) continue;
      int64_t due = 1;
      for (int64_t n = 1; n <= 8; ++n) {
        bool is_one = heads % n == 0;
        for (int64_t first = 0; first + n <= heads; first += n) {
          const bool is_inside = first / group == (first + n - 1) / group;
          const bool is_whole = first % group == 0 && n % group == 0;
          is_one = is_one && (is_inside || is_whole);
        }
        if (is_one) due = n;
      }
      EXPECT_EQ(mosaic::heads_together(heads, group, 8), due)
          << heads << " heads, groups of " << group;
    }
  }
  struct Of {
    int64_t heads, kv_heads, head_dim;
    Tile tile;
    int64_t tiles, due, due_backward;
  };
  for (const Of& of :
       {Of{8, 8, 128, {512, 512}, 1, 8, 4},
        Of{8, 8, 128, {1024, 1024}, 1, 2, 2},
        Of{8, 8, 128, {1024, 1024}, 2, 1, 1},
        Of{1, 1, 128, {256, 256}, 1, 1, 1}, Of{6, 6, 128, {256, 256}, 1, 6, 3},
        Of{9, 3, 128, {256, 256}, 1, 3, 3}, Of{10, 5, 128, {256, 256}, 1, 2, 2},
        Of{12, 2, 128, {256, 256}, 1, 6, 3},
        // As many heads as vector memory holds.
        Of{8, 8, 256, {512, 512}, 1, 4, 4},
        Of{8, 1, 256, {512, 512}, 1, 8, 4}}) {
    Request r = request_of("causal & documents");
    r.tile = of.tile;
    AttentionShape shape = shape_of(of.heads);
    shape.kv_heads = of.kv_heads;
    shape.head_dim = shape.v_head_dim = of.head_dim;
    auto kernel = make(r, shape, Dtype::bf16, "v6e", {of.tiles, 4});
    ASSERT_TRUE(kernel.ok()) << kernel.error().message;
    EXPECT_EQ(kernel->heads_per_pass, of.due) << of.heads;
    EXPECT_NE(kernel->contract.text.find(
                  fmt::format("\"heads_per_pass\":{}", of.due)),
              std::string::npos)
        << kernel->contract.text;
    auto backward = make_backward(r, shape, {of.tiles, 1});
    ASSERT_TRUE(backward.ok()) << backward.error().message;
    EXPECT_EQ(backward->heads_per_pass, of.due_backward) << of.heads;
    EXPECT_NE(backward->contract.text.find(
                  fmt::format("\"heads_per_pass\":{}", of.due_backward)),
              std::string::npos)
        << backward->contract.text;
  }
}

// A mask that bounds cannot express has a bitmap for every tile that the list
// may have; so do several masks, and the count includes each head's list.
TEST(MosaicKernel, HasBitmapsWhereBoundsDoNotTell) {
  EXPECT_EQ(make(request_of("causal & documents"))->bitmaps, 0);
  const Request r = request_of("sink(4) & causal");
  auto kernel = make(r);
  ASSERT_TRUE(kernel.ok()) << kernel.error().message;
  EXPECT_EQ(kernel->steps, 8 * 16);
  EXPECT_EQ(kernel->bitmaps, 8 * 16 + 2);
  EXPECT_EQ(kernel->plan_heads, 1);
  EXPECT_EQ(kernel->scalar_words, 2 * 8 * 16 + 2 + 3);
  Request two = request_of("causal");
  two.masks.push_back(*parse_mask("full"));
  auto by_head = make(two);
  ASSERT_TRUE(by_head.ok()) << by_head.error().message;
  EXPECT_EQ(by_head->plan_heads, 2);
  EXPECT_EQ(by_head->mask, "causal; full");
  EXPECT_EQ(by_head->steps, 2 * 8 * 16);
  EXPECT_EQ(by_head->bitmaps, 2 * 8 * 16 + 2);
  EXPECT_EQ(by_head->scalar_words, 2 * 2 * 8 * 16 + 3 + 3);
  // With picks, one list for each head that picks.
  Facts present;
  present.picks = Picks{};
  present.picks->heads = 4;
  auto picks = make_mosaic_kernel(request_of("causal & blocks(64)"), present,
                                  {shape_of(), Dtype::bf16}, "v6e");
  ASSERT_TRUE(picks.ok()) << picks.error().message;
  EXPECT_EQ(picks->plan_heads, 4);
  // Bitmaps take at most 512 MiB.
  Request large = request_of("causal & chunk(64)", 1 << 17);
  large.tile = {1024, 1024};
  large.ceilings.max_steps = 100000;
  EXPECT_EQ(make(large, shape_of(), Dtype::bf16, "v6e", {1, 4})->bitmaps, 4096);
}

TEST(MosaicKernel, TheBackwardKernelIsAnotherContract) {
  Request r = request_of("causal & documents");
  r.tile = kMosaicBackwardTile;
  const MosaicKernel base = *make_backward(r);
  EXPECT_EQ(make_backward(request_of("documents & causal", 3500))->mask,
            base.mask);
  std::set<std::string> keys = {
      base.contract.key,
      make(r, shape_of(), Dtype::bf16, "v6e:1x1", kMosaicBackward)
          ->contract.key};
  std::set<std::string> programs = {base.program_text};
  auto differs = [&](const Result<MosaicKernel>& kernel, const char* what) {
    ASSERT_TRUE(kernel.ok()) << kernel.error().message;
    EXPECT_TRUE(keys.insert(kernel->contract.key).second) << what;
    EXPECT_TRUE(programs.insert(kernel->program_text).second) << what;
  };
  differs(make_backward(r, shape_of(), kMosaicBackward, true), "dlse");
  differs(make_backward(r, shape_of(), {2, 1}), "tiles a pass");
  differs(make_backward(r, shape_of(), {1, 2}), "fetch ahead");
  AttentionShape shape = shape_of();
  shape.kv_heads = 2;
  differs(make_backward(r, shape), "kv heads");
  Request tile = r;
  tile.tile = {256, 512};
  differs(make_backward(tile), "tile");
  // A list has 8 columns, each of at most 8 rows in passes of 3.
  EXPECT_EQ(make_backward(r, shape_of(), {3, 1})->steps, 8 * 9);
  r.ceilings.max_steps = 20;
  EXPECT_EQ(make_backward(r, shape_of(), {3, 1})->steps, 20 + 8 * 2);
}

TEST(MosaicKernel, VectorMemoryIsABudgetOfTheBackwardKernel) {
  Request r = request_of("causal", 1 << 16);
  r.tile = kMosaicBackwardTile;
  r.ceilings.max_steps = 9000;
  MosaicOptions whole = kMosaicBackward;
  whole.query_chunk = 1 << 16;
  auto kernel = make_backward(r, shape_of(), whole);
  ASSERT_TRUE(kernel.ok()) << kernel.error().message;
  EXPECT_EQ(kernel->heads_per_pass, 2);
  EXPECT_EQ(kernel->vector_bytes, 78651392);
  EXPECT_EQ(kernel->query_chunk, 0);
  EXPECT_EQ(kernel->contract.text.find("query_chunk"), std::string::npos);
}

// If dQ of all queries, or the sums of keys whose heads take turns, do not fit,
// chunks have as many rows of tiles as fit, with as many heads as leave enough
// rows.
TEST(MosaicKernel, WhatDoesNotFitComesInChunksOfQueries) {
  Request r = request_of("causal", 1 << 16);
  r.tile = kMosaicBackwardTile;
  AttentionShape shared = shape_of();
  shared.kv_heads = 2;
  const auto holds = [](const Result<MosaicKernel>& kernel, int64_t heads,
                        int64_t chunk) {
    ASSERT_TRUE(kernel.ok()) << kernel.error().message;
    EXPECT_EQ(kernel->heads_per_pass, heads);
    EXPECT_EQ(kernel->query_chunk, chunk);
    EXPECT_LE(kernel->vector_bytes, 80 << 20);
    EXPECT_NE(
        kernel->contract.text.find(fmt::format("\"query_chunk\":{}", chunk)),
        std::string::npos)
        << kernel->contract.text;
    EXPECT_NE(kernel->program_text.find("dk_so_far"), std::string::npos);
  };
  holds(make_backward(r, shared), 4, 26624);
  r.q_len = r.kv_len = 1 << 19;
  holds(make_backward(r), 4, 20992);
  holds(make_backward(r, shared), 4, 24576);
  // One more row does not fit.
  Facts present;
  AttentionCall call = {.shape = shape_of(), .dtype = Dtype::bf16};
  call.backward = true;
  for (const auto& [target, tokens] :
       {std::pair("v4", 1 << 16), {"v5p", 1 << 19}, {"v6e", 1 << 19}}) {
    r.q_len = r.kv_len = tokens;
    for (const int64_t dim : {64, 128}) {
      call.shape.head_dim = call.shape.v_head_dim = dim;
      const auto all = plan_kernel(r, present, call, target, kMosaicBackward);
      ASSERT_TRUE(all.ok()) << all.error().message;
      KernelShape s = all->shape;
      const int64_t room = vector_room(s.core_bytes, true) / 5 * 4;
      EXPECT_EQ(vector_bytes(backward_arguments(s)), all->kernel.vector_bytes);
      EXPECT_LE(all->kernel.vector_bytes, room);
      ++s.chunk_rows;
      EXPECT_GT(vector_bytes(backward_arguments(s)), room);
    }
  }
}

// There are chunks, too, where these let more heads go together than dQ of all
// queries does.
TEST(MosaicKernel, ChunksLetMoreHeadsGoTogether) {
  struct Row {
    const char* target;
    int64_t tokens, heads, kv_heads, dim, together, chunk;
  };
  for (const Row& row : {
           Row{"v6e", 1 << 15, 8, 8, 128, 4, 0},
           {"v6e", 49152, 8, 8, 128, 4, 23040},
           {"v6e", 1 << 16, 8, 8, 128, 4, 23040},
           {"v6e", 98304, 8, 8, 128, 4, 23040},
           {"v6e", 1 << 17, 8, 8, 128, 4, 22528},
           {"v5e", 1 << 16, 8, 8, 128, 4, 23040},
           {"v6e", 49152, 8, 2, 128, 4, 26624},  // else heads take turns
           {"v6e", 1 << 15, 8, 1, 128, 4, 26624},
           {"v6e", 1 << 15, 8, 8, 256, 2, 0},
           {"v5p", 1 << 15, 8, 8, 128, 2, 22016},
           {"v6e", 1 << 16, 2, 2, 128, 2, 0},
           {"v6e", 1 << 17, 2, 2, 128, 2, 52224},
           {"v6e", 1 << 17, 1, 1, 128, 1, 0},
       }) {
    SCOPED_TRACE(fmt::format("{} {} {} of {}x{}", row.target, row.tokens,
                             row.heads, row.kv_heads, row.dim));
    Request r = request_of("causal", row.tokens);
    r.tile = kMosaicBackwardTile;
    r.ceilings.max_steps = 9000;
    AttentionCall call;
    call.dtype = Dtype::bf16;
    call.backward = true;
    call.shape = {row.heads, row.kv_heads, row.dim, row.dim, {}, 0};
    const auto kernel = plan_kernel(r, {}, call, row.target, kMosaicBackward);
    ASSERT_TRUE(kernel.ok()) << kernel.error().message;
    EXPECT_EQ(kernel->kernel.heads_per_pass, row.together);
    EXPECT_EQ(kernel->kernel.query_chunk, row.chunk);
    EXPECT_EQ(query_chunk_of(r, {}, call, row.target, kMosaicBackward),
              row.chunk);
    // Without chunks fewer heads go together.
    MosaicOptions whole = kMosaicBackward;
    whole.query_chunk = row.tokens;
    const auto all = plan_kernel(r, {}, call, row.target, whole);
    if (all && row.chunk > 0) {
      EXPECT_LT(all->kernel.heads_per_pass, row.together);
    } else if (row.chunk == 0) {
      ASSERT_TRUE(all.ok()) << all.error().message;
      EXPECT_EQ(all->kernel.contract.key, kernel->kernel.contract.key);
    }
  }
}

TEST(MosaicKernel, AChunkOfQueriesMayBeSaid) {
  Request r = request_of("causal");
  r.tile = kMosaicBackwardTile;
  MosaicOptions options = kMosaicBackward;
  options.query_chunk = 1024;
  const auto kernel = make_backward(r, shape_of(), options);
  ASSERT_TRUE(kernel.ok()) << kernel.error().message;
  EXPECT_EQ(kernel->query_chunk, 1024);
  // 4 chunks, each of 8 columns of 2 rows.
  EXPECT_EQ(kernel->steps, 4 * 8 * 2);
  EXPECT_EQ(kernel->scalar_words, 64 + (5 + 4 * kChunkWords) + 3);
  // A chunk of all queries means no chunks.
  for (const int64_t all : {4096, 1 << 20}) {
    options.query_chunk = all;
    const auto whole = make_backward(r, shape_of(), options);
    EXPECT_EQ(whole->program_text, make_backward(r)->program_text);
    EXPECT_EQ(whole->contract.key, make_backward(r)->contract.key);
  }
  options.query_chunk = 1000;
  EXPECT_EQ(error_of(make_backward(r, shape_of(), options)),
            "[mosaic] a chunk of queries must be of whole tiles of 512, found "
            "1000");
  options.query_chunk = 1024;
  EXPECT_EQ(error_of(make(r, shape_of(), Dtype::bf16, "v6e", options)),
            "[mosaic] a chunk of queries goes with backward, found 1024 with "
            "forward");
  r.q_len = r.kv_len = 1 << 18;
  options.query_chunk = 1 << 18;
  std::string error = error_of(make_backward(r, shape_of(), options));
  EXPECT_NE(error.find("(dQ of a head stays there:"), std::string::npos)
      << error;
  options.query_chunk = (1 << 18) - 512;
  error = error_of(make_backward(r, shape_of(), options));
  EXPECT_TRUE(error.ends_with("(dQ of a chunk stays there: a smaller one)"))
      << error;
}

TEST(MosaicKernel, ScalarMemoryIsABudget) {
  Request r = request_of("causal", 1 << 20);
  r.tile = {1024, 1024};
  // Rows have 1,024 steps; up to 1,023 of a page may be empty.
  auto paged = make(r);
  ASSERT_TRUE(paged.ok()) << paged.error().message;
  EXPECT_EQ(paged->page, 62 << 10);
  EXPECT_EQ(paged->steps, 17 * paged->page);
  EXPECT_EQ(paged->scalar_words, paged->page + (17 + 1) + 3);
  EXPECT_NE(paged->contract.text.find("\"page\":63488"), std::string::npos)
      << paged->contract.text;
  // 3 more steps for each of 1,024 rows.
  r.ceilings.max_steps = 250000;
  auto kernel = make(r);
  ASSERT_TRUE(kernel.ok()) << kernel.error().message;
  EXPECT_EQ(kernel->steps, 253072);
  EXPECT_EQ(kernel->page, 0);
  EXPECT_EQ(kernel->scalar_words, 253072 + 2 + 3);
  EXPECT_EQ(kernel->contract.text.find("page"), std::string::npos);
}

// Pages hold the longest list, with and without bitmaps. A page of fewer steps
// than a row may have is refused, others are rounded up to the page step.
TEST(MosaicKernel, PagesAreAsManyAsTheLongestListMayNeed) {
  for (const char* mask : {"causal", "causal | prefix"}) {
    for (const auto& [batch, tokens] :
         {std::pair(1, 1 << 18), std::pair(4, 1 << 17)}) {
      Request r = request_of(mask, tokens);
      r.batch = batch;
      r.tile = {512, 512};
      Facts present;
      present.prefix_lengths = Ints{};
      auto kernel = make_mosaic_kernel(r, present, {shape_of(1), Dtype::bf16},
                                       "v6e", {1, 1});
      ASSERT_TRUE(kernel.ok()) << kernel.error().message;
      const int64_t side = tokens / 512;
      const int64_t pages = kernel->steps / kernel->page / batch;
      EXPECT_GE(pages * (kernel->page - side + 1), side * side);
      EXPECT_LE(kernel->page, kMosaicMaxPageSteps);
      EXPECT_LT(kernel->scalar_words, 261376);
    }
  }
  Request r = request_of("causal");
  MosaicOptions options;
  options.page_steps = 15;
  EXPECT_EQ(error_of(make(r, shape_of(), Dtype::bf16, "v6e", options)),
            "[mosaic] steps of a page must be from 16, which a row may have, "
            "to 65536, found 15");
  options.page_steps = 16;
  auto kernel = make(r, shape_of(), Dtype::bf16, "v6e", options);
  ASSERT_TRUE(kernel.ok()) << kernel.error().message;
  EXPECT_EQ(kernel->page, 1024);
  EXPECT_EQ(kernel->steps, 8 * 16 * kernel->page);
}

// Both dims are in the contract and in the text.
TEST(MosaicKernel, EveryPairOfDimsIsAnother) {
  const Request r = request_of("causal & documents");
  for (const bool backward : {false, true}) {
    std::set<std::string> keys, texts;
    for (const int64_t dim : {64, 128, 192, 256}) {
      for (const int64_t v_dim : {64, 128, 192, 256}) {
        AttentionShape shape = shape_of();
        shape.head_dim = dim;
        shape.v_head_dim = v_dim;
        shape.scale = 1;
        auto kernel = backward ? make_backward(r, shape) : make(r, shape);
        ASSERT_TRUE(kernel.ok()) << kernel.error().message;
        keys.insert(kernel->contract.key);
        texts.insert(kernel->text);
      }
    }
    EXPECT_EQ(keys.size(), 16);
    EXPECT_EQ(texts.size(), 16);
  }
}

// For a dim that does not fill lanes, the call has the tokens last and the
// program transposes; other kernels have no sign of it.
TEST(MosaicKernel, TensorsThatDoNotFillLanesHaveTheTokensLast) {
  const Request r = request_of("causal & documents");
  const auto has = [](const std::string& text, std::string_view word) {
    return text.find(word) != std::string::npos;
  };
  for (const bool backward : {false, true}) {
    for (const auto& [dim, v_dim] : {std::pair(64, 64), std::pair(192, 128),
                                     std::pair(128, 64), std::pair(128, 256)}) {
      AttentionShape shape = shape_of();
      shape.head_dim = dim;
      shape.v_head_dim = v_dim;
      auto kernel = backward ? make_backward(r, shape) : make(r, shape);
      ASSERT_TRUE(kernel.ok()) << kernel.error().message;
      const bool turned = dim % 128 != 0 || v_dim % 128 != 0;
      EXPECT_EQ(kernel->tokens_last, turned);
      EXPECT_EQ(has(kernel->contract.text, "tokens_last"), turned);
      EXPECT_EQ(has(kernel->program_text, "stablehlo.transpose"), turned);
      const std::string program =
          kernel->program_text.substr(0, kernel->program_text.find("\n//"));
      const size_t call = program.find("stablehlo.custom_call");
      const std::string main = program.substr(0, program.find("stablehlo."));
      for (const int64_t d : {dim, v_dim}) {
        const auto rows = fmt::format("x{}x{}xbf16", kernel->kv_len, d);
        const auto columns = fmt::format("x{}x{}xbf16", d, kernel->kv_len);
        const bool tokens_last = d % 128 != 0;
        EXPECT_TRUE(has(main, rows));
        EXPECT_FALSE(has(main, columns));
        EXPECT_TRUE(has(program.substr(call), tokens_last ? columns : rows));
        EXPECT_EQ(has(kernel->text, columns), tokens_last);
        EXPECT_EQ(has(kernel->text, rows), !tokens_last);
      }
    }
  }
}

// For head dim 256, and tiles of 1,024 queries, a pass takes 256 queries at a
// time. All other kernels take whole tiles, and keep the previous version.
TEST(MosaicKernel, LongHeadDimsAndLongTilesComeInStrips) {
  struct Wanted {
    int32_t dim, v_dim, tile_q;
    Dtype dtype;
    bool strips;
  };
  for (const Wanted& w : {Wanted{256, 256, 512, Dtype::bf16, true},
                          Wanted{256, 256, 1024, Dtype::bf16, true},
                          Wanted{256, 256, 256, Dtype::bf16, false},
                          Wanted{256, 256, 640, Dtype::bf16, false},
                          Wanted{256, 256, 512, Dtype::f32, false},
                          Wanted{256, 128, 512, Dtype::bf16, false},
                          Wanted{192, 192, 512, Dtype::bf16, false},
                          Wanted{128, 128, 512, Dtype::bf16, false},
                          Wanted{192, 128, 1024, Dtype::bf16, true},
                          Wanted{64, 64, 1024, Dtype::bf16, true},
                          Wanted{128, 128, 1024, Dtype::f32, false},
                          Wanted{128, 128, 768, Dtype::bf16, false}}) {
    Request r = request_of("causal & documents");
    r.tile = {w.tile_q, 512};
    AttentionShape shape = shape_of();
    shape.head_dim = w.dim;
    shape.v_head_dim = w.v_dim;
    auto kernel = make(r, shape, w.dtype);
    ASSERT_TRUE(kernel.ok()) << kernel.error().message;
    const auto has = [&](const std::string& word) {
      return kernel->text.find(word) != std::string::npos;
    };
    const int64_t keys = 512 * kernel->options.tiles_per_pass;
    EXPECT_EQ(has(fmt::format("-> vector<{}x{}xf32>", keys, w.tile_q)),
              !w.strips);
    const std::string version =
        fmt::format("\"kernel_version\":{}", w.strips ? 4 : 3);
    EXPECT_NE(kernel->contract.text.find(version), std::string::npos)
        << kernel->contract.text;
    auto backward = make_backward(r, shape);
    ASSERT_TRUE(backward.ok()) << backward.error().message;
    EXPECT_NE(backward->contract.text.find("\"kernel_version\":2"),
              std::string::npos);
  }
}

// 64 numbers along the lanes take 128; across the lanes they take 64.
TEST(MosaicKernel, VectorBytesAreOfWholeLanes) {
  mosaic::KernelShape s;
  s.q_len = s.kv_len = 4096;
  s.block_q = s.block_kv = 512;
  s.steps = 64;
  const auto bytes = [&](int64_t dim, bool backward) {
    s.head_dim = s.v_head_dim = dim;
    return mosaic::vector_bytes(backward ? mosaic::backward_arguments(s)
                                         : mosaic::forward_arguments(s));
  };
  // With the tokens last no lanes are empty. O' has a line per dim; Q, K, V and
  // O have half as many bytes too: eight slots, of four tiles of keys each.
  EXPECT_EQ(bytes(128, false) - bytes(64, false),
            64 * 512 * (4 + 2 * (8 * (1 + 4 + 4) + 1)));
  EXPECT_EQ(bytes(256, false) - bytes(192, false),
            bytes(192, false) - bytes(128, false));
  // dQ' of a head, dK' and dV' of a tile; K and V of eight tiles, Q and g of
  // four passes, O and g of four rows, dK and dV, dQ of two; and K', which has
  // no scratch where the tokens are last.
  EXPECT_EQ(bytes(128, true) - bytes(64, true),
            64 * (4096 * 4 + 512 * 2 * 4) + 128 * 512 * 2 +
                64 * 512 * 2 * (2 * 8 + 2 * 4 * 4 + 2 * 4 + 2 + 2));
}

// Tensors have twice the bytes, products full precision, and nothing is bf16.
TEST(MosaicKernel, Float32IsAKernelOfItsOwn) {
  const Request r = request_of("causal & documents");
  Facts present;
  present.doc_ids = Ints{};
  for (const bool backward : {false, true}) {
    // One head, because with more heads float32 fits fewer of them at once.
    AttentionCall call{shape_of(1), Dtype::bf16};
    call.backward = call.dlse = backward;
    const auto bf16 = make_mosaic_kernel(r, present, call, "v6e");
    call.dtype = Dtype::f32;
    const auto f32 = make_mosaic_kernel(r, present, call, "v6e");
    ASSERT_TRUE(f32.ok()) << f32.error().message;
    EXPECT_NE(f32->contract.key, bf16->contract.key);
    EXPECT_EQ(f32->plan.key, bf16->plan.key);
    EXPECT_EQ(f32->text.find("bf16"), std::string::npos);
    constexpr std::string_view kExact = "#tpu.contract_precision<fp32>";
    EXPECT_EQ(bf16->text.find(kExact), std::string::npos);
    const auto count = [&](std::string_view word) {
      int64_t n = 0;
      for (size_t at = 0; (at = f32->text.find(word, at)) != std::string::npos;
           ++at) {
        ++n;
      }
      return n;
    };
    EXPECT_GT(count("tpu.matmul"), 2);
    EXPECT_EQ(count("tpu.matmul"), count(kExact));
    // Rings and tiles that are half as large in bf16; backward also K'.
    const int64_t queries = 512 * 128, keys = 256 * 128;
    constexpr int64_t ring = 8;  // slots, with 4 fetched ahead
    EXPECT_EQ(f32->vector_bytes - bf16->vector_bytes,
              backward ? 2 * (keys + 2 * ring * keys + 2 * 4 * 4 * queries +
                              2 * 4 * queries + 2 * keys + 2 * queries)
                       : 2 * (ring * (queries + 2 * 4 * keys) + queries));
  }
}

// A rounded row sum has eight lines beside O', and no scratch for an exact one.
TEST(MosaicKernel, ARoundedRowSumTakesThePlaceOfAnExactOne) {
  const Request r = request_of("causal");
  MosaicOptions options = kRounded;
  const auto rounded = make(r, shape_of(), Dtype::bf16, "v6e:1x1", options);
  options.row_sum = RowSum::exact;
  const auto exact = make(r, shape_of(), Dtype::bf16, "v6e:1x1", options);
  ASSERT_TRUE(rounded.ok()) << rounded.error().message;
  EXPECT_EQ(rounded->heads_per_pass, exact->heads_per_pass);
  EXPECT_EQ(rounded->vector_bytes, exact->vector_bytes);
}

// A softcap is in the contract and in the text; each value has its own.
TEST(MosaicKernel, ASoftcapIsStatic) {
  const Request r = request_of("causal");
  for (const bool backward : {false, true}) {
    std::set<std::string> keys, texts;
    for (const double softcap : {0.0, 30.0, 50.0}) {
      AttentionShape shape = shape_of();
      shape.softcap = softcap;
      auto kernel = backward ? make_backward(r, shape) : make(r, shape);
      ASSERT_TRUE(kernel.ok()) << kernel.error().message;
      EXPECT_EQ(kernel->text.find("math.tanh") != std::string::npos,
                softcap != 0);
      keys.insert(kernel->contract.key);
      texts.insert(kernel->text);
    }
    EXPECT_EQ(keys.size(), 3);
    EXPECT_EQ(texts.size(), 3);
  }
}

// Sink logits add a term to the contract, an array in scalar memory and,
// backward, a result.
TEST(MosaicKernel, SinkLogitsAreAnArrayMore) {
  const Request r = request_of("causal");
  for (const bool backward : {false, true}) {
    AttentionCall call{shape_of(), Dtype::bf16};
    call.backward = backward;
    const auto plain = make_mosaic_kernel(r, {}, call, "v6e");
    call.sink_logits = true;
    const auto kernel = make_mosaic_kernel(r, {}, call, "v6e");
    ASSERT_TRUE(kernel.ok()) << kernel.error().message;
    EXPECT_NE(kernel->contract.key, plain->contract.key);
    EXPECT_NE(kernel->contract.text.find("sink_logits"), std::string::npos);
    EXPECT_EQ(plain->contract.text.find("sink_logits"), std::string::npos);
    EXPECT_EQ(kernel->scalar_words, plain->scalar_words + 8);
    EXPECT_EQ(kernel->vector_bytes - plain->vector_bytes,
              // A line of sums for each head of a pass, and a result for each
              // head.
              backward ? 4 * (4 * 512 + 8 * 128) : 0);
    EXPECT_NE(kernel->program_text.find("%sink_logits: tensor<8xf32>"),
              std::string::npos);
    EXPECT_EQ(
        kernel->program_text.find("tensor<8x1x128xf32>") != std::string::npos,
        backward);
  }
  // 65,536 heads: the logits and the whole list do not fit together, but the
  // logits and a page do.
  AttentionCall many{shape_of(kMaxHeads), Dtype::bf16};
  many.sink_logits = true;
  Request large = request_of("causal", 1 << 16);
  large.tile = {128, 128};
  large.ceilings.max_steps = 196000;
  MosaicOptions options = {8, 4};
  options.lowering_reason = testing::lowering_reason(large.tile);
  const auto paged = make_mosaic_kernel(large, {}, many, "v6e", options);
  ASSERT_TRUE(paged.ok()) << paged.error().message;
  EXPECT_GT(paged->page, 0);
  many.sink_logits = false;
  const auto whole = make_mosaic_kernel(large, {}, many, "v6e", options);
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  EXPECT_EQ(whole->page, 0);
  // The bounds of so many batch rows do not fit, even with pages of steps.
  Request rows = request_of("causal", 1024);
  rows.batch = 131072;
  rows.tile = {1024, 1024};
  EXPECT_EQ(error_of(make(rows, shape_of(1))),
            "[mosaic] the scalar arrays must fit the 261376 words of v6e, "
            "found 394368 (with steps a page at a time: fewer batch rows)");
}

// Sink telemetry has its own kernel; the other kernels are the same as for a
// call without sink telemetry.
TEST(MosaicKernel, SinkTelemetryTakesNoValuesAndBitmapsAlone) {
  const Request r = request_of("causal & documents");
  Facts present;
  present.doc_ids = Ints{};
  AttentionCall call;
  call.shape = shape_of();
  call.dtype = Dtype::bf16;
  const auto forward = make_mosaic_kernel(r, present, call, "v6e");
  call.sink_telemetry = true;
  const auto made = make_mosaic_kernel(r, present, call, "v6e");
  ASSERT_TRUE(forward.ok() && made.ok()) << error_of(made);
  EXPECT_NE(made->contract.key, forward->contract.key);
  EXPECT_NE(made->contract.text.find("\"direction\":\"sinks\""),
            std::string::npos)
      << made->contract.text;
  EXPECT_EQ(forward->bitmaps, 0);
  EXPECT_GT(made->bitmaps, 0);
  for (const char* absent : {"%v: ", "%q_ids: ", "%kv_ids: ", "%sink_logits"}) {
    EXPECT_EQ(made->program_text.find(absent), std::string::npos) << absent;
  }
  const std::string rule =
      "[mosaic] sink telemetry must be of a forward call without sink logits, "
      "found ";
  AttentionCall both = call;
  both.sink_logits = true;
  EXPECT_EQ(error_of(make_mosaic_kernel(r, present, both, "v6e")),
            rule + "sink logits");
  both.backward = true;
  EXPECT_EQ(error_of(make_mosaic_kernel(r, present, both, "v6e")),
            rule + "backward");
  MosaicOptions any;
  any.numbers = Numbers::any;
  EXPECT_EQ(error_of(make_mosaic_kernel(r, present, call, "v6e", any)),
            "[mosaic] sink telemetry takes no other term of numbers than "
            "finite, found any");
  EXPECT_EQ(error_of(make_mosaic_kernel(r, present, call, "v6e", kRounded)),
            "[mosaic] a rounded row sum goes with forward, found it with sink "
            "telemetry");
  // A kernel that does not fit is refused before its text is written.
  Request large = request_of("causal");
  large.tile = {1024, 1024};
  call.dtype = Dtype::f32;
  call.shape.head_dim = 256;
  MosaicOptions far = {8, 14};
  EXPECT_TRUE(error_of(make_mosaic_kernel(large, {}, call, "v6e", far))
                  .starts_with("[mosaic] the scratch must fit 50331648 bytes "
                               "of vector memory, found "));
}

TEST(MosaicKernel, RefusesWhatItCannotDo) {
  const Request r = request_of("causal");
  EXPECT_EQ(error_of(make(r, shape_of(), Dtype::f32, "v6e", kRounded)),
            "[mosaic] a rounded row sum goes with bf16, found F32");
  EXPECT_EQ(error_of(make_backward(r, shape_of(), kRounded)),
            "[mosaic] a rounded row sum goes with forward, found it with "
            "backward");
  for (const int64_t bad : {-64, 0, 32, 100, 320, 512}) {
    const std::string why = fmt::format(
        " head dim must be a multiple of 64 up to 256, found {}", bad);
    AttentionShape dim = shape_of();
    dim.head_dim = bad;
    EXPECT_EQ(error_of(make(r, dim)), "[mosaic]" + why);
    EXPECT_EQ(error_of(make_backward(r, dim)), "[mosaic]" + why);
    AttentionShape value_dim = shape_of();
    value_dim.v_head_dim = bad;
    EXPECT_EQ(error_of(make(r, value_dim)), "[mosaic] value" + why);
  }
  AttentionShape heads = shape_of();
  heads.kv_heads = 3;
  EXPECT_EQ(error_of(make(r, heads)),
            "[mosaic] kv heads must divide heads, found 3 for 8");
  AttentionShape cap = shape_of();
  cap.softcap = 1e7;
  EXPECT_EQ(error_of(make(r, cap)),
            "[mosaic] softcap must be 0 or from 1e-30 to 1000000, found "
            "10000000");
  AttentionShape scale = shape_of();
  scale.scale = -1;
  EXPECT_EQ(error_of(make(r, scale)),
            "[mosaic] scale must be from 1e-30 to 1000000, found -1");
  AttentionCall slope{shape_of(), Dtype::bf16};
  slope.dlse = true;
  EXPECT_EQ(error_of(make_mosaic_kernel(r, {}, slope, "v6e")),
            "[mosaic] the log-sum-exp's gradient goes with backward, found it "
            "with forward");
  cap.softcap = -1;
  EXPECT_EQ(error_of(make_backward(r, cap)),
            "[mosaic] softcap must be 0 or from 1e-30 to 1000000, found -1");
  EXPECT_EQ(error_of(make(r, shape_of(), Dtype::f16)),
            "[mosaic] the type must be bf16 or f32, found F16, which libtpu "
            "takes for no kernel's arrays (cast to one of them, or take "
            "another lane)");
  EXPECT_EQ(error_of(make(r, shape_of(), Dtype::f64)),
            "[mosaic] the type must be bf16 or f32, found F64");
  Request three = r;
  three.masks.resize(3, r.masks.front());
  EXPECT_EQ(error_of(make(three)),
            "[mosaic] heads must be a multiple of the plan's, found 8 for 3");
  Request tile = r;
  tile.tile = {192, 256};
  EXPECT_EQ(error_of(make(tile)),
            "[mosaic] a tile's sides must be multiples of 128 up to 1024, "
            "found 192x256");
  EXPECT_EQ(error_of(make(r, shape_of(), Dtype::bf16, "v6e", {9, 4})),
            "[mosaic] tiles a pass must be from 1 to 8, found 9");
  EXPECT_EQ(error_of(make(r, shape_of(), Dtype::bf16, "v6e", {2, 15})),
            "[mosaic] passes to fetch ahead must be from 1 to 14, found 15");
  EXPECT_EQ(
      error_of(make(r, shape_of(), Dtype::bf16, "v3:1x1")),
      "[target] target must be one of those whose memory is known (v4, v5e, "
      "v5p, v6e, tpu7x), found 'v3'");
  for (const char* target :
       {"v6e:garbage", "v6e:", "v6e:\xff", "V6e", "v6e:0x1", "v6e:1x0",
        "v6e:-1x1", "v6e:x", "v6e:1x", "v6e:4", "v6e:65536x65536"}) {
    EXPECT_TRUE(error_of(make(r, shape_of(), Dtype::bf16, target))
                    .starts_with("[mosaic] a target must read as v6e:1x1"))
        << target;
  }
  Request wide = request_of("full", 2048);
  wide.kv_len = 1 << 21;
  wide.tile = {128, 128};
  wide.ceilings.max_steps = 261000;
  AttentionShape many = shape_of(8320);
  many.kv_heads = 1;
  EXPECT_EQ(error_of(make(wide, many, Dtype::bf16, "v6e", {1, 4})),
            "[mosaic] passes of all heads must be at most 2147483643, found "
            "2171520000");
  Request huge = request_of("causal", 1 << 23);
  huge.tile = {1024, 1024};
  huge.batch = 1 << 16;
  huge.ceilings.max_steps = 1;
  EXPECT_TRUE(error_of(make(huge, shape_of(1), Dtype::bf16, "v6e", {1, 1}))
                  .starts_with("[mosaic] an array must be at most"));
  Request absurd = request_of("causal", 1 << 30);
  absurd.tile = {8, 8};
  absurd.batch = 1 << 20;
  EXPECT_EQ(error_of(make(absurd)),
            "[contract] steps of the worst case must be at most "
            "1099511627776 steps, found 1.89e+22 (set max_steps, or use a "
            "larger tile)");
  Request none = r;
  none.q_len = 0;
  EXPECT_EQ(error_of(make(none)),
            "[request] q_len must be from 1 to 1073741824, found 0");
}

// Either side alone may be below the granule. The reason is a term of the
// contract; a kernel without one has the contract that it had before.
TEST(MosaicKernel, ATileBelowTheGranuleHasAReason) {
  Request r = request_of("causal");
  const auto with = [&](const Tile& tile, std::optional<std::string> reason,
                        bool backward = false) {
    r.tile = tile;
    MosaicOptions options = backward ? kMosaicBackward : MosaicOptions{};
    options.lowering_reason = std::move(reason);
    AttentionCall call{shape_of(), Dtype::bf16};
    call.backward = backward;
    return make_mosaic_kernel(r, {}, call, "v6e:2x2", options);
  };
  struct Below {
    Tile tile;
    const char* times;
  };
  for (const Below& b : {Below{{128, 128}, "4"},
                         {{128, 256}, "2"},
                         {{256, 128}, "2"},
                         {{384, 128}, "2.67"}}) {
    for (const bool backward : {false, true}) {
      const auto [q, kv] = b.tile;
      EXPECT_EQ(error_of(with(b.tile, {}, backward)),
                fmt::format("[mosaic] a tile below the granule of v6e, "
                            "256x256, must come with a lowering reason, found "
                            "none for {}x{}, which pays {} times its work",
                            q, kv, b.times));
      const auto one = with(b.tile, "few tokens", backward);
      ASSERT_TRUE(one) << one.error().message;
      EXPECT_EQ(one->lowering.chip, "v6e");
      EXPECT_EQ(one->lowering.granule, 256);
      EXPECT_EQ(one->lowering.tile, b.tile);
      EXPECT_EQ(one->lowering.reason, "few tokens");
      EXPECT_NE(one->contract.text.find("\"lowering_reason\":\"few tokens\""),
                std::string::npos);
      const auto other = with(b.tile, "short rows", backward);
      ASSERT_TRUE(other) << other.error().message;
      EXPECT_EQ(other->plan.key, one->plan.key);
      EXPECT_EQ(other->text, one->text);
      EXPECT_NE(other->contract.key, one->contract.key);
    }
  }
  for (const Tile& tile : {Tile{256, 256}, {384, 256}, {1024, 512}}) {
    const auto plain = with(tile, {});
    ASSERT_TRUE(plain) << plain.error().message;
    EXPECT_EQ(plain->lowering.reason, std::nullopt);
    EXPECT_EQ(plain->contract.text.find("lowering"), std::string::npos);
    EXPECT_EQ(error_of(with(tile, "few tokens")),
              fmt::format("[mosaic] a lowering reason goes with a tile or a "
                          "logical block below the granule of v6e, 256x256, "
                          "found one for {}x{}",
                          tile.q, tile.kv));
  }
  EXPECT_EQ(error_of(with({128, 128}, "")),
            "[mosaic] a lowering reason must be of 1 to 200 bytes, found 0");
}

// Golden texts of small kernels. To change them on purpose, run this test with
// TESSERA_WRITE_GOLDEN=1.
TEST(MosaicKernel, TextsAreTheGoldenOnes) {
  mosaic::KernelShape s;
  s.batch = 2;
  s.heads = 4;
  s.kv_heads = 2;
  s.q_len = s.kv_len = 512;
  s.block_q = 256;
  s.block_kv = 128;
  s.steps = 128;
  s.scale = 0.125;
  s.has_low = s.has_high = s.has_dlse = true;
  mosaic::KernelShape two = s;
  two.tiles_per_pass = 2;
  two.fetch_ahead = 1;
  mosaic::KernelShape heads = s;
  heads.heads_per_pass = 4;
  mosaic::KernelShape two_heads = two;
  two_heads.heads_per_pass = 4;
  mosaic::KernelShape chunks = two;
  chunks.chunk_rows = 1;
  for (const auto& [name, text] :
       {std::pair{"forward", mosaic::forward_kernel(s)},
        std::pair{"forward_heads", mosaic::forward_kernel(heads)},
        std::pair{"backward", mosaic::backward_kernel(two)},
        std::pair{"backward_heads", mosaic::backward_kernel(two_heads)},
        std::pair{"backward_chunks", mosaic::backward_kernel(chunks)}}) {
    const std::string path = fmt::format("tests/golden/mosaic/{}.mlir", name);
    if (std::getenv("TESSERA_WRITE_GOLDEN")) {
      ASSERT_TRUE(write_file(path, text).ok());
    }
    auto golden = read_file(path, 1 << 20);
    ASSERT_TRUE(golden.ok()) << golden.error().message;
    EXPECT_EQ(text, *golden) << name;
  }
}

// backend_config is what the program's call holds, where quotes are escaped.
TEST(MosaicKernel, ItsConfigurationIsThatOfItsProgram) {
  for (const bool backward : {false, true}) {
    const Request r = request_of("causal & documents");
    const auto kernel = backward ? make_backward(r) : make(r);
    ASSERT_TRUE(kernel.ok()) << kernel.error().message;
    const std::string begin = "backend_config = \"";
    const std::string& program = kernel->program_text;
    const size_t at = program.find(begin) + begin.size();
    std::string own = program.substr(at, program.find('"', at) - at);
    for (size_t i = 0; (i = own.find("\\22", i)) != std::string::npos; ++i) {
      own.replace(i, 3, "\"");
    }
    EXPECT_EQ(kernel->backend_config, own);
    const auto config = nlohmann::json::parse(kernel->backend_config);
    EXPECT_EQ(config["custom_call_config"]["body"], base64(kernel->text));
    EXPECT_EQ(config["scoped_memory_configs"][0]["size"], int64_t{96} << 20);
  }
}

TEST(MosaicProgram, HoldsTheKernelTwice) {
  mosaic::KernelShape s;
  s.q_len = s.kv_len = 512;
  s.steps = 128;
  const std::string program =
      mosaic::program("tessera_forward", mosaic::forward_arguments(s), 2,
                      "two\nlines\n", int64_t{96} << 20);
  EXPECT_NE(program.find("\\22body\\22: \\22dHdvCmxpbmVzCg==\\22"),
            std::string::npos);
  EXPECT_NE(program.find("// two\n// lines\n"), std::string::npos);
}

}  // namespace
}  // namespace tessera::mosaic
