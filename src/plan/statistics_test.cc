// plan/statistics_test.cc: checks counts token by token.
#include <gtest/gtest.h>

#include "plan/make_plan.h"
#include "tessera/batch.h"
#include "tests/oracle.h"
#include "tests/random_case.h"
#include "tests/random_worklist.h"

namespace tessera::plan {
namespace {

using namespace testing;

Request request_of(const char* mask, int64_t length, Tile tile) {
  Request r;
  r.masks = {*parse_mask(mask)};
  r.q_len = length;
  r.kv_len = length;
  r.tile = tile;
  return r;
}

Result<Statistics> statistics_of(const Request& request,
                                 const Facts& facts = {}) {
  auto plan = make_plan(request, facts);
  if (!plan.ok()) return plan.error();
  return make_statistics(*BorrowedBatch::make(request, facts));
}

// 1000 tokens are three tiles of 256 and one of 232. Work is paid for the real
// tokens, not for 1024.
TEST(Statistics, RaggedTailsPayForRealTokensOnly) {
  auto s = statistics_of(request_of("full", 1000, {256, 256}));
  ASSERT_TRUE(s.ok()) << s.error().message;
  EXPECT_EQ(s->tiles_total, 16);
  EXPECT_EQ(s->tiles_full, 16);
  EXPECT_EQ(s->pairs_total, 1000 * 1000);
  EXPECT_EQ(s->pairs_needed, 1000 * 1000);
  EXPECT_EQ(s->pairs_paid, 1000 * 1000);

  s = statistics_of(request_of("causal", 1000, {256, 256}));
  ASSERT_TRUE(s.ok()) << s.error().message;
  EXPECT_EQ(s->tiles_active, 10);
  EXPECT_EQ(s->tiles_partial, 4);
  EXPECT_EQ(s->tiles_full, 6);
  EXPECT_EQ(s->pairs_needed, 1000 * 1001 / 2);
  EXPECT_EQ(s->pairs_paid, 256 * 256 * 6 + 232 * 256 * 3 + 232 * 232);
  EXPECT_DOUBLE_EQ(s->density, 10.0 / 16);
  EXPECT_EQ(s->grid_width, 4);
  EXPECT_EQ(s->grid_width_transposed, 4);
  EXPECT_EQ(s->row_histogram,
            (std::map<int64_t, int64_t>{{1, 1}, {2, 1}, {3, 1}, {4, 1}}));
}

TEST(Statistics, ALogicalBlockIsReportedBesideTheTile) {
  Request r = request_of("causal", 1000, {256, 256});
  r.logical_block = {100, 50};
  auto s = statistics_of(r);
  ASSERT_TRUE(s.ok()) << s.error().message;
  EXPECT_EQ(s->tiles_active, 10);
  // Row i of 100 queries reaches key 100 i + 99: 2 (i + 1) blocks of 50 keys.
  EXPECT_EQ(s->logical_active, 2 * 55);
  EXPECT_EQ(s->logical_paid, 55 * 100 * 100);
  EXPECT_GT(s->pairs_paid, s->logical_paid);
  EXPECT_GT(s->logical_paid, s->pairs_needed);

  // A side of 0 takes the tile's size.
  r.logical_block = {0, 50};
  s = statistics_of(r);
  ASSERT_TRUE(s.ok()) << s.error().message;
  EXPECT_EQ(s->logical_active, 6 + 11 + 16 + 20);
  EXPECT_EQ(s->logical_paid, 256 * (300 + 550 + 800) + 232 * 1000);
  EXPECT_EQ(s->tiles_active, 10);
}

// Far more logical blocks than a list may hold are still counted.
TEST(Statistics, LogicalBlocksAreCountedWithoutAList) {
  Request r = request_of("causal", 1 << 18, {4096, 4096});
  r.logical_block = {8, 8};
  auto s = statistics_of(r);
  ASSERT_TRUE(s.ok()) << s.error().message;
  const int64_t n = (1 << 18) / 8;
  EXPECT_EQ(s->logical_active, n * (n + 1) / 2);
  EXPECT_GT(s->logical_active, kMaxTiles);
  EXPECT_EQ(s->logical_paid, n * (n + 1) / 2 * 64);
}

TEST(Statistics, RowsAndColumnsWithoutTiles) {
  Request r = request_of("documents", 64, {16, 16});
  std::vector<int32_t> ids(64, -1);
  std::fill(ids.begin() + 16, ids.begin() + 32, 0);
  Facts facts;
  facts.doc_ids = ids;
  auto s = statistics_of(r, facts);
  ASSERT_TRUE(s.ok()) << s.error().message;
  EXPECT_EQ(s->tiles_active, 1);
  EXPECT_EQ(s->empty_rows, 3);
  EXPECT_EQ(s->empty_columns, 3);
  EXPECT_EQ(s->row_histogram, (std::map<int64_t, int64_t>{{0, 3}, {1, 1}}));
}

// Recounts everything from dense classes; paid work token by token.
Statistics count(const RandomCase& c, const Request& request,
                 const Facts& facts) {
  Statistics s;
  const Oracle oracle(c.masks, request, facts);
  const int64_t tq = c.tile.q;
  const int64_t tk = c.tile.kv;
  for (int64_t b = 0; b < c.batch; ++b) {
    for (int64_t h = 0; h < oracle.heads(); ++h) {
      const DenseClasses d = oracle.classes(b, h);
      std::vector<int64_t> in_column(static_cast<size_t>(d.columns), 0);
      for (int64_t r = 0; r < d.rows; ++r) {
        int64_t in_row = 0;
        for (int64_t col = 0; col < d.columns; ++col) {
          const TileClass tile_class = d.at(r, col);
          ++s.tiles_total;
          s.tiles_partial += tile_class == TileClass::partial;
          s.tiles_full += tile_class == TileClass::full;
          in_row += tile_class != TileClass::empty;
          in_column[static_cast<size_t>(col)] += tile_class != TileClass::empty;
        }
        ++s.row_histogram[in_row];
        s.empty_rows += in_row == 0;
        s.grid_width = std::max(s.grid_width, in_row);
      }
      for (int64_t n : in_column) {
        s.empty_columns += n == 0;
        s.grid_width_transposed = std::max(s.grid_width_transposed, n);
      }
      for (int64_t i = 0; i < c.q_len; ++i) {
        for (int64_t j = 0; j < c.kv_len; ++j) {
          ++s.pairs_total;
          s.pairs_needed += oracle.legal(b, h, i, j);
          s.pairs_paid += d.at(i / tq, j / tk) != TileClass::empty;
        }
      }
    }
  }
  s.tiles_active = s.tiles_partial + s.tiles_full;
  s.density =
      static_cast<double>(s.tiles_active) / static_cast<double>(s.tiles_total);
  s.logical_active = s.tiles_active;
  s.logical_paid = s.pairs_paid;
  return s;
}

TEST(Statistics, AreWhatCountingSays) {
  for_seeds(800, [](std::mt19937_64& random, uint64_t seed) {
    const RandomCase c = random_case(seed);
    SCOPED_TRACE(describe(c));
    auto request = c.request();
    ASSERT_TRUE(request.ok()) << request.error().message;
    const Facts facts = c.facts();
    Statistics due = count(c, *request, facts);
    auto s = statistics_of(*request, facts);
    ASSERT_TRUE(s.ok()) << s.error().message;
    ASSERT_EQ(*s, due);
    // The same with a separate logical block.
    RandomCase logical = c;
    logical.tile = {random_int(random, 8, 24), random_int(random, 8, 24)};
    request->logical_block = logical.tile;
    const Statistics of_blocks = count(logical, logical.shape(), facts);
    due.logical_active = of_blocks.tiles_active;
    due.logical_paid = of_blocks.pairs_paid;
    s = statistics_of(*request, facts);
    ASSERT_TRUE(s.ok()) << s.error().message;
    ASSERT_EQ(*s, due);
  });
}

TEST(Statistics, Errors) {
  Request r = request_of("causal", 64, {16, 16});
  for (Tile block : {Tile{7, 16}, Tile{16, 4097}, Tile{-1, 16}}) {
    r.logical_block = block;
    auto s = statistics_of(r);
    ASSERT_FALSE(s.ok());
    EXPECT_EQ(s.error().message,
              "[statistics] logical block must be 0 (the tile) or between 8 "
              "and 4096, found " +
                  std::to_string(block.q) + "x" + std::to_string(block.kv));
  }
  r.logical_block = {0, 0};
  EXPECT_TRUE(statistics_of(r).ok());
}

// 2^60 pairs a list: 8 lists are beyond 63 bits.
TEST(Statistics, PairsBeyond63BitsAreAnError) {
  Request r = request_of("window(0, 0)", kMaxTokens, {4096, 4096});
  r.batch = 8;
  auto s = statistics_of(r);
  ASSERT_FALSE(s.ok());
  EXPECT_EQ(s.error().kind, ErrorKind::limit);
  EXPECT_EQ(s.error().message,
            "[statistics] pairs over all lists must fit 63 bits, found 8 lists "
            "of 1073741824 x 1073741824 for the plan");
  r.batch = 7;
  EXPECT_TRUE(statistics_of(r).ok());
}

}  // namespace
}  // namespace tessera::plan
