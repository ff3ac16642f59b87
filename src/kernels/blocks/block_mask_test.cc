// kernels/blocks/block_mask_test.cc: compares every variant with the
// definition, cell by cell, and with the plan of the same blocks as picks.
#include "kernels/blocks/block_mask.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "plan/make_plan.h"

namespace tessera::kernels {
namespace {

struct Case {
  int64_t lists = 1, rows = 1, columns = 1;
  std::vector<uint8_t> bytes, bits;

  bool active(int64_t l, int64_t r, int64_t c) const {
    return bytes[static_cast<size_t>((l * rows + r) * columns + c)] != 0;
  }
  BlockMask by_bytes() const { return {bytes, lists, rows, columns}; }
  BlockMask by_bits() const { return {bits, lists, rows, columns, true}; }
};

// Rows of every density, including empty and full ones; any byte but 0 is
// active.
Case random_case(std::mt19937_64& random, int64_t lists, int64_t rows,
                 int64_t columns) {
  Case c{lists, rows, columns, {}, {}};
  const int64_t row_bytes = (columns + 7) / 8;
  c.bits.assign(static_cast<size_t>(lists * rows * row_bytes), 0);
  constexpr uint64_t kOf64[] = {0, 1, 10, 32, 57, 64};
  const uint64_t all = random() % 8;  // 6 and 7: a density per row
  for (int64_t r = 0; r < lists * rows; ++r) {
    const uint64_t density = kOf64[all < 6 ? all : random() % 6];
    for (int64_t k = 0; k < columns; ++k) {
      const bool on = random() % 64 < density;
      c.bytes.push_back(on ? static_cast<uint8_t>(1 + random() % 255) : 0);
      if (on) {
        c.bits[static_cast<size_t>(r * row_bytes + k / 8)] |=
            static_cast<uint8_t>(1 << (k % 8));
      }
    }
  }
  return c;
}

// The expected list, with rows and columns exchanged if `transposed`.
Worklist wanted(const Case& c, bool transposed) {
  Worklist w;
  w.lists = c.lists;
  w.rows = transposed ? c.columns : c.rows;
  w.columns = transposed ? c.rows : c.columns;
  w.row_start = {0};
  for (int64_t l = 0; l < w.lists; ++l) {
    for (int64_t r = 0; r < w.rows; ++r) {
      for (int64_t k = 0; k < w.columns; ++k) {
        if (transposed ? c.active(l, k, r) : c.active(l, r, k)) {
          w.entries.push_back(Entry::of(k, TileClass::full));
        }
      }
      w.row_start.push_back(static_cast<uint32_t>(w.entries.size()));
    }
  }
  return w;
}

void expect_lists(const BlockLists& lists, const Case& c) {
  EXPECT_EQ(lists.forward, wanted(c, false));
  EXPECT_EQ(lists.transposed, wanted(c, true));
  EXPECT_EQ(lists.transposed, transpose(lists.forward));
}

std::vector<const BlockVariant*> variants_here() {
  std::vector<const BlockVariant*> out;
  for (const BlockVariant& v : block_variants()) {
    if (runs_here(v)) out.push_back(&v);
  }
  return out;
}

// Reuses the memory of one call for the next, larger or smaller; also uses new
// memory, where the sanitizer detects writes past its end.
TEST(BlockMask, EveryVariantMakesTheListsOfTheDefinition) {
  std::mt19937_64 random(1);
  constexpr int64_t kEdges[] = {1, 7, 8, 9, 63, 64, 65, 127, 128, 129, 200};
  const auto size = [&] {
    return random() % 2 == 0 ? kEdges[random() % std::size(kEdges)]
                             : static_cast<int64_t>(1 + random() % 150);
  };
  std::vector<BlockLists> kept(block_variants().size());
  for (int i = 0; i < 60; ++i) {
    const auto lists = static_cast<int64_t>(1 + random() % 3);
    const int64_t rows = size();
    const Case c = random_case(random, lists, rows, size());
    for (const BlockVariant* v : variants_here()) {
      SCOPED_TRACE(::testing::Message() << "case " << i << ", " << v->name);
      for (const BlockMask& mask : {c.by_bytes(), c.by_bits()}) {
        BlockLists& again = kept[static_cast<size_t>(v - &block_variants()[0])];
        ASSERT_TRUE(make_block_lists(mask, kMaxTiles, *v, again));
        expect_lists(again, c);
        BlockLists fresh;
        ASSERT_TRUE(make_block_lists(mask, kMaxTiles, *v, fresh));
        expect_lists(fresh, c);
      }
      if (HasFailure()) return;
    }
  }
}

TEST(BlockMask, TheBestVariantOfAnIsa) {
  for (const Isa isa : machine_isas()) {
    const BlockVariant& v = block_variant(isa);
    EXPECT_TRUE(runs_here(v));
    EXPECT_LE(v.isa, isa);
    for (const BlockVariant* other : variants_here()) {
      EXPECT_TRUE(other->isa > isa || other <= &v);
    }
  }
  EXPECT_EQ(&block_variant(Isa::portable), &block_variants()[0]);
}

std::string error_of(const BlockMask& mask, const BlockOptions& options = {}) {
  BlockLists lists;
  lists.forward.entries = {Entry{7}};
  const BlockLists before = lists;
  const auto made = worklists_of_blocks(mask, lists, options);
  EXPECT_EQ(lists.forward, before.forward);
  EXPECT_EQ(lists.transposed, before.transposed);
  return made ? "none" : made.error().message;
}

TEST(BlockMask, RefusesWhatDoesNotFit) {
  const std::vector<uint8_t> cells(12, 1);
  EXPECT_EQ(error_of({cells, 0, 3, 4}),
            "[blocks] lists must be from 1 to 268435456, found 0");
  EXPECT_EQ(error_of({cells, 1, -3, 4}),
            "[blocks] rows must be from 1 to 268435456, found -3");
  EXPECT_EQ(error_of({cells, 1, 3, kMaxTiles + 1}),
            "[blocks] columns must be from 1 to 268435456, found 268435457");
  EXPECT_EQ(error_of({cells, kMaxTiles, 1, 2}),
            "[blocks] rows and columns over all lists must be at most "
            "268435456, found 268435456 lists of [1, 2]");
  EXPECT_EQ(error_of({cells, 1, 3, 5}),
            "[blocks] a byte mask of [1, 3, 5] must hold 5 bytes a row for 3 "
            "rows, found 12 in all");
  EXPECT_EQ(error_of({cells, 1, 3, 4, true}),
            "[blocks] a packed mask of [1, 3, 4] must hold 1 bytes a row for 3 "
            "rows, found 12 in all");
  const std::vector<uint8_t> over = {1, 0, 1, 3};
  EXPECT_EQ(error_of({over, 2, 1, 9, true}),
            "[blocks] bits behind the 9 columns must be 0, found others for "
            "row 0 of list 1");
  EXPECT_EQ(error_of({cells, 1, 3, 4}, {11, {}}),
            "[blocks] active blocks must be at most 11, found 12");
  EXPECT_EQ(error_of({cells, 1, 3, 4}, {-1, {}}),
            "[blocks] max_tiles must be from 0 to 268435456, found -1");
}

// Ragged lengths, several batch rows and heads; with causal, also compares the
// legal pairs.
TEST(BlockMask, PicksPlanToTheSameLists) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 30; ++i) {
    const auto n = static_cast<int64_t>(8 + random() % 12);
    Request request;
    request.masks = {*make_mask(blocks(n))};
    request.batch = static_cast<int64_t>(1 + random() % 2);
    request.q_len = static_cast<int64_t>(1 + random() % 100);
    request.kv_len = request.q_len + static_cast<int64_t>(random() % 50);
    request.tile = {n, n};
    const Case c = random_case(
        random, request.batch * static_cast<int64_t>(1 + random() % 3),
        (request.q_len + n - 1) / n, (request.kv_len + n - 1) / n);
    const BlockMask mask = i % 2 == 0 ? c.by_bytes() : c.by_bits();
    const auto picks = picks_from_blocks(mask, request);
    ASSERT_TRUE(picks) << picks.error().message;
    Facts facts;
    facts.picks = picks->view();
    const auto plan = plan::make_plan(request, facts);
    ASSERT_TRUE(plan) << plan.error().message;
    EXPECT_EQ(plan->forward, wanted(c, false));
    EXPECT_EQ(plan->transposed, wanted(c, true));

    request.masks = {*make_mask(causal() & blocks(n))};
    const auto legality = Legality::bind(request, facts);
    ASSERT_TRUE(legality);
    const int64_t heads = c.lists / request.batch;
    for (int64_t l = 0; l < c.lists; ++l) {
      for (int64_t q = 0; q < request.q_len; ++q) {
        for (int64_t k = 0; k < request.kv_len; ++k) {
          const bool want = k <= q + request.kv_len - request.q_len &&
                            c.active(l, q / n, k / n);
          ASSERT_EQ(legality->legal(l / heads, l % heads, q, k), want);
        }
      }
    }
  }
}

TEST(BlockMask, PicksAreRefusedWhereTheMaskIsAnother) {
  const std::vector<uint8_t> cells(12, 1);
  Request request;
  request.masks = {*make_mask(causal())};
  request.q_len = request.kv_len = 60;
  request.tile = {16, 16};
  const auto text = [&](const BlockMask& mask) {
    const auto picks = picks_from_blocks(mask, request);
    return picks ? "none" : picks.error().message;
  };
  EXPECT_EQ(text({cells, 1, 3, 4}),
            "[blocks] a block mask is the picks of a mask, so one must name "
            "blocks(n), found none");
  request.masks = {*make_mask(blocks(16))};
  EXPECT_EQ(text({cells, 1, 3, 4}),
            "[blocks] a block mask must be [1, heads, 4, 4], blocks of 16 "
            "tokens, found [1, 3, 4]");
  request.batch = 2;
  request.q_len = 48;
  EXPECT_EQ(text({cells, 1, 3, 4}),
            "[blocks] a block mask must be [2, heads, 3, 4], blocks of 16 "
            "tokens, found [1, 3, 4]");
  request.batch = 1;
  request.q_len = kMaxTokens;
  request.kv_len = 1;
  request.masks = {*make_mask(blocks(kMaxTokens))};
  const std::vector<uint8_t> one(1, 1);
  EXPECT_EQ(text({one, 1, 1, 1}),
            "[blocks] picks may take 1073741824 bytes, found 1 lists of "
            "1073741824 queries that pick 1 blocks");
}

}  // namespace
}  // namespace tessera::kernels
