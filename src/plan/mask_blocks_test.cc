// plan/mask_blocks_test.cc: the masks of a rectangle's partial tiles against
// brute force, pair by pair, in both directions.
#include <gtest/gtest.h>

#include <set>

#include "tessera/layouts.h"
#include "tests/oracle.h"
#include "tests/random_case.h"
#include "tests/random_worklist.h"

namespace tessera::plan {
namespace {

using namespace testing;

Request causal_request() {
  Request r;
  r.masks = {*parse_mask("causal")};
  r.q_len = r.kv_len = 24;
  r.tile = {8, 16};
  return r;
}

TEST(MaskBlocks, ByHand) {
  const BorrowedBatch batch = *BorrowedBatch::make(causal_request(), {});
  // Rows of 8 queries over 24 keys, in tiles of 16 keys: the diagonal from the
  // tile's first key, the diagonal from its ninth key, a full tile, and the
  // first mask again, cut at key 24.
  const auto forward = make_mask_blocks(batch, false, 2);
  ASSERT_TRUE(forward.ok()) << forward.error().message;
  EXPECT_EQ(forward->rows, 8);
  EXPECT_EQ(forward->columns, 16);
  EXPECT_EQ(forward->mask_next, (std::vector<int32_t>{0, 0, 1, 0, 0, 0}));
  ASSERT_EQ(forward->blocks.size(), 2u * 8 * 16);
  const auto backward = make_mask_blocks(batch, true, 3);
  ASSERT_TRUE(backward.ok()) << backward.error().message;
  EXPECT_EQ(backward->rows, 16);
  EXPECT_EQ(backward->columns, 8);
  EXPECT_EQ(backward->mask_next, (std::vector<int32_t>{0, 1, 0, 0, 0, 0}));
  for (size_t q = 0; q < 8; ++q) {
    for (size_t k = 0; k < 16; ++k) {
      for (size_t n = 0; n < 2; ++n) {
        const int due = k <= q + 8 * n;
        EXPECT_EQ(forward->blocks[(n * 8 + q) * 16 + k], due);
        EXPECT_EQ(backward->blocks[(n * 16 + k) * 8 + q], due);
      }
    }
  }
}

// For every cell of the rectangle, the named block holds the legality of each
// pair of the tile. No two blocks are equal.
void check_direction(const RandomCase& c, const Batch& batch,
                     const Oracle& oracle, bool transposed, int64_t width) {
  const Plan& plan = batch.plan();
  const Worklist& w = transposed ? plan.transposed : plan.forward;
  const auto masks = make_mask_blocks(batch, transposed, width);
  ASSERT_TRUE(masks.ok()) << masks.error().message;
  const Rectangle cells = *make_rectangle(w, width);
  ASSERT_EQ(masks->rows, transposed ? c.tile.kv : c.tile.q);
  ASSERT_EQ(masks->columns, transposed ? c.tile.q : c.tile.kv);
  ASSERT_EQ(masks->mask_next.size(), cells.column.size());
  const int64_t area = masks->rows * masks->columns;
  const int64_t distinct = static_cast<int64_t>(masks->blocks.size()) / area;
  std::set<int64_t> met;
  for (size_t at = 0; at < cells.column.size(); ++at) {
    const int64_t next = masks->mask_next[at];
    if (cells.tile_class[at] != 1) {
      ASSERT_EQ(next, 0) << at;
      continue;
    }
    ASSERT_LT(next, distinct);
    met.insert(next);
    const auto cell = static_cast<int64_t>(at) / width;
    const int64_t list = cell / w.rows;
    for (int64_t r = 0; r < masks->rows; ++r) {
      for (int64_t k = 0; k < masks->columns; ++k) {
        int64_t i = cell % w.rows * masks->rows + r;
        int64_t j = cells.column[at] * masks->columns + k;
        if (transposed) std::swap(i, j);
        const bool legal =
            i < c.q_len && j < c.kv_len &&
            oracle.legal(list / plan.heads, list % plan.heads, i, j);
        const auto byte =
            static_cast<size_t>((next * masks->rows + r) * masks->columns + k);
        ASSERT_EQ(masks->blocks[byte], legal ? 1 : 0)
            << "query " << i << ", key " << j;
      }
    }
  }
  ASSERT_EQ(static_cast<int64_t>(met.size()), distinct);
  std::set<std::vector<uint8_t>> blocks;
  for (int64_t n = 0; n < distinct; ++n) {
    const auto first = masks->blocks.begin() + n * area;
    ASSERT_TRUE(blocks.emplace(first, first + area).second) << n;
  }
}

TEST(MaskBlocks, AreWhatBruteForceSays) {
  for_seeds(400, [](std::mt19937_64& random, uint64_t seed) {
    const RandomCase c = random_case(seed);
    SCOPED_TRACE(describe(c));
    const auto request = c.request();
    ASSERT_TRUE(request.ok()) << request.error().message;
    const Facts facts = c.facts();
    const auto batch = BorrowedBatch::make(*request, facts);
    ASSERT_TRUE(batch.ok()) << batch.error().message;
    const Oracle oracle(c.masks, *request, facts);
    for (const bool transposed : {false, true}) {
      const Plan& plan = batch->plan();
      const Worklist& w = transposed ? plan.transposed : plan.forward;
      const int64_t width = grid_width(w) + random_int(random, 0, 2);
      check_direction(c, *batch, oracle, transposed, width);
    }
  });
}

TEST(MaskBlocks, WhatDoesNotFitIsRefused) {
  const BorrowedBatch batch = *BorrowedBatch::make(causal_request(), {});
  const auto error_of = [&](bool transposed, int64_t width) {
    const auto masks = make_mask_blocks(batch, transposed, width);
    return masks.ok() ? "no error" : masks.error().message;
  };
  EXPECT_EQ(error_of(true, 3), "no error");
  EXPECT_EQ(error_of(true, 2),
            "[mask_blocks] width must be at least the 3 tiles of the widest "
            "row, found 2");
  EXPECT_EQ(error_of(false, kMaxTiles),
            "[mask_blocks] a rectangle may have 214748364 cells in 268435456 "
            "rows, found 1 lists of 3 rows, 268435456 wide");

  // One more than 64 distinct masks of 16 MiB each.
  Request large;
  large.masks = {*parse_mask("causal & documents")};
  large.q_len = large.kv_len = 65 * kMaxBlock;
  large.tile = {kMaxBlock, kMaxBlock};
  std::vector<int32_t> ids;
  for (int32_t tile = 0; tile < 65; ++tile) {
    // The boundary is at a different position in each tile.
    ids.insert(ids.end(), static_cast<size_t>(tile) + 1, 2 * tile);
    ids.insert(ids.end(), static_cast<size_t>(kMaxBlock - tile - 1),
               2 * tile + 1);
  }
  Facts facts;
  facts.doc_ids = ids;
  const auto masks =
      make_mask_blocks(*BorrowedBatch::make(large, facts), false, 8);
  ASSERT_FALSE(masks.ok());
  EXPECT_EQ(masks.error().kind, ErrorKind::limit);
  EXPECT_TRUE(masks.error().message.starts_with(
      "[mask_blocks] bitmaps may take 1073741824 bytes, found more at tile"))
      << masks.error().message;
}

}  // namespace
}  // namespace tessera::plan
