// plan/topk_test.cc: topk_idxs become picks that plan as brute force does and
// convert back unchanged; key reads are counted key by key.
#include <gtest/gtest.h>

#include <algorithm>

#include "tessera/layouts.h"
#include "tests/random_topk.h"

namespace tessera::plan {
namespace {

using namespace testing;

Request one_row(const char* mask, int64_t q_len, int64_t kv_len) {
  Request r;
  r.masks = {*parse_mask(mask)};
  r.q_len = q_len;
  r.kv_len = kv_len;
  r.tile = {8, 8};
  return r;
}

std::string error_of(const std::vector<int32_t>& values,
                     const std::vector<int64_t>& shape, const Request& r) {
  const auto picks = picks_from_topk(values, shape, r);
  return picks ? "none" : picks.error().message;
}

TEST(Topk, GroupsMoveBeforeTheQueries) {
  const Request r = one_row("blocks(4)", 2, 12);
  // Two queries, two groups, two slots.
  const std::vector<int32_t> values = {0, -1, 2, 1, -1, -1, 1, 0};
  const auto picks = picks_from_topk(values, std::vector<int64_t>{2, 2, 2}, r);
  ASSERT_TRUE(picks) << picks.error().message;
  EXPECT_EQ(picks->heads, 2);
  EXPECT_EQ(picks->k, 2);
  EXPECT_EQ(picks->blocks, (std::vector<int32_t>{0, -1, -1, -1, 2, 1, 1, 0}));
  // One group of four slots, with the batch row as the first dimension.
  const auto row = picks_from_topk(values, std::vector<int64_t>{1, 2, 1, 4}, r);
  ASSERT_TRUE(row) << row.error().message;
  EXPECT_EQ(row->heads, 1);
  EXPECT_EQ(row->blocks, values);
}

TEST(Topk, RefusesWhatStacksDisagreeAbout) {
  const Request r = one_row("causal & blocks(4)", 2, 12);
  EXPECT_EQ(error_of({0, 3, -1, -1}, {2, 2}, r),
            "[topk] topk_idxs must be from -1 to 2, blocks of 4 keys, found 3 "
            "for query 0 of batch row 0, group 0");
  EXPECT_EQ(error_of({0, 1, -1, -2}, {2, 2}, r),
            "[topk] topk_idxs must be from -1 to 2, blocks of 4 keys, found -2 "
            "for query 1 of batch row 0, group 0");
  EXPECT_EQ(error_of({-1, -1, 0, 1, 1, -1, 2, 2}, {2, 2, 2}, r),
            "[topk] topk_idxs of a query must differ, found 2 twice for query "
            "1 of batch row 0, group 1");
  EXPECT_EQ(error_of({0, 1}, {2}, r),
            "[topk] topk_idxs must have shape [2, k], [2, groups, k] or [1, 2, "
            "groups, k], found [2]");
  EXPECT_EQ(error_of({0, 1, 0}, {3, 1}, r),
            "[topk] topk_idxs must have shape [2, k], [2, groups, k] or [1, 2, "
            "groups, k], found [3, 1]");
  EXPECT_EQ(error_of({}, {2, 0}, r),
            "[topk] topk_idxs must have shape [2, k], [2, groups, k] or [1, 2, "
            "groups, k], found [2, 0]");
  EXPECT_EQ(error_of({0, 1}, {2, 2}, r),
            "[topk] topk_idxs must hold [2, 1, 2] values, found 2");
  EXPECT_EQ(error_of({0, 1}, {2, 1}, one_row("causal", 2, 12)),
            "[topk] topk_idxs are the picks of a mask, so one must name "
            "blocks(n), found none");
  const Request far = one_row("blocks(1)", 2, kMaxTokens);
  EXPECT_EQ(error_of({kMaxTokens, 0}, {2, 1}, far).substr(0, 40),
            "[topk] topk_idxs must be from -1 to 1073");
}

// For every granularity and form of groups, the plan equals that of single
// pairs, and the output equals the input in every slot.
TEST(Topk, PlansAsBruteForceAndComesBackAsItWas) {
  int64_t dead = 0, ragged = 0;
  for (const RandomTopk& c : topk_cases(1, 60)) {
    const auto picks = picks_from_topk(c.values, c.shape, c.request);
    ASSERT_TRUE(picks) << picks.error().message;
    Facts facts = c.facts();
    facts.picks = picks->view();
    const auto batch = BorrowedBatch::make(c.request, facts);
    ASSERT_TRUE(batch) << batch.error().message;
    const Plan& plan = batch->plan();
    EXPECT_EQ(plan.heads, c.groups);
    ragged += plan.kv_len % c.granularity != 0;
    KeyReads reads;
    for (int64_t b = 0; b < plan.batch; ++b) {
      for (int64_t g = 0; g < plan.heads; ++g) {
        int64_t pairs = 0;
        for (int64_t r = 0; r < plan.forward.rows; ++r) {
          auto entries = plan.forward.row(plan.list(b, g), r);
          for (int64_t column = 0; column < plan.forward.columns; ++column) {
            int64_t found = 0, needed = 0;
            const int64_t q_end = std::min(plan.q_len, (r + 1) * plan.tile.q);
            const int64_t k_end =
                std::min(plan.kv_len, (column + 1) * plan.tile.kv);
            for (int64_t k = column * plan.tile.kv; k < k_end; ++k) {
              bool seen = false;
              for (int64_t q = r * plan.tile.q; q < q_end; ++q) {
                const bool legal = c.legal(b, g, q, k);
                found += legal;
                seen |= legal;
              }
              needed += seen;
            }
            pairs += found;
            reads.needed += needed;
            if (found == 0) continue;
            reads.read += k_end - column * plan.tile.kv;
            const bool full = found == (q_end - r * plan.tile.q) *
                                           (k_end - column * plan.tile.kv);
            ASSERT_FALSE(entries.empty());
            EXPECT_EQ(entries[0], Entry::of(column, full ? TileClass::full
                                                         : TileClass::partial));
            entries = entries.subspan(1);
          }
          EXPECT_TRUE(entries.empty());
          for (int64_t q = r * plan.tile.q;
               q < std::min(plan.q_len, (r + 1) * plan.tile.q); ++q) {
            bool sees = false;
            for (int64_t k = 0; k < plan.kv_len; ++k) {
              sees |= c.legal(b, g, q, k);
            }
            dead += !sees;
          }
        }
        EXPECT_EQ(plan.legal_pairs[static_cast<size_t>(plan.list(b, g))],
                  pairs);
        reads.by_query += pairs;
      }
    }
    const auto counted = count_key_reads(*batch);
    ASSERT_TRUE(counted);
    EXPECT_EQ(*counted, reads);
    EXPECT_EQ(counted->extra(), reads.read - reads.needed);

    const auto written = make_topk(*batch);
    ASSERT_TRUE(written) << written.error().message;
    EXPECT_EQ(written->values, c.values);
    std::vector<int64_t> shape = {plan.batch * plan.q_len, c.groups, c.k};
    if (c.groups == 1) shape.erase(shape.begin() + 1);
    EXPECT_EQ(written->shape, shape);
    const auto again =
        picks_from_topk(written->values, written->shape, c.request);
    ASSERT_TRUE(again);
    EXPECT_EQ(again->blocks, picks->blocks);
  }
  EXPECT_GT(dead, 20);
  EXPECT_GT(ragged, 10);
}

TEST(Topk, AMaskWithoutPicksHasNoneToWrite) {
  const auto batch = BorrowedBatch::make(one_row("causal", 9, 9), {});
  ASSERT_TRUE(batch);
  const auto written = make_topk(*batch);
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().message,
            "[topk] topk_idxs are the picks of a mask, so one must name "
            "blocks(n), found none");
  // Two tile rows: the first reads 8 keys, the second 9; all are needed.
  const auto reads = count_key_reads(*batch);
  ASSERT_TRUE(reads);
  EXPECT_EQ(*reads, (KeyReads{45, 8 + 9, 8 + 9}));
}

}  // namespace
}  // namespace tessera::plan
