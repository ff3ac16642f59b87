// tests/regression_test.cc: named cases that block-sparse planners are known to
// get wrong. The oracle also judges every plan tile by tile.
#include <gtest/gtest.h>

#include <string>

#include "plan/make_plan.h"
#include "tessera/plan.h"
#include "tests/oracle.h"
#include "tests/random_case.h"

namespace tessera::testing {
namespace {

using Ids = std::vector<int32_t>;

RandomCase square(Expr mask, int64_t n, int64_t tile = 8) {
  RandomCase c;
  c.masks = {std::move(mask)};
  c.q_len = n;
  c.kv_len = n;
  c.tile = {tile, tile};
  return c;
}

// The classes of tiles as digits (0 empty, 1 partial, 2 full), one word for
// each tile row.
std::string grid(const Plan& plan, int64_t list = 0) {
  std::string out;
  for (int64_t r = 0; r < plan.forward.rows; ++r) {
    std::string line(static_cast<size_t>(plan.forward.columns), '0');
    for (const Entry e : plan.forward.row(list, r)) {
      line[static_cast<size_t>(e.column())] =
          static_cast<char>('0' + static_cast<int>(e.tile_class()));
    }
    out += (r > 0 ? " " : "") + line;
  }
  return out;
}

// Plans a case, and compares the plan with the oracle before returning it.
Plan planned(const RandomCase& c) {
  EXPECT_TRUE(well_formed(c)) << describe(c);
  const Result<Request> request = c.request();
  EXPECT_TRUE(request.ok()) << request.error().message;
  const Facts facts = c.facts();
  const Result<Plan> plan = plan::make_plan(*request, facts);
  EXPECT_TRUE(plan.ok()) << plan.error().message << describe(c);
  if (!plan.ok()) return {};
  const Oracle oracle(c.masks, *request, facts);
  for (int64_t b = 0; b < plan->batch; ++b) {
    for (int64_t h = 0; h < plan->heads; ++h) {
      const DenseClasses dense = oracle.classes(b, h);
      std::string want;
      for (size_t at = 0; at < dense.cells.size(); ++at) {
        const bool starts = at % static_cast<size_t>(dense.columns) == 0;
        if (at > 0 && starts) want += ' ';
        want += static_cast<char>('0' + static_cast<int>(dense.cells[at]));
      }
      EXPECT_EQ(grid(*plan, plan->list(b, h)), want) << describe(c);
      EXPECT_EQ(plan->legal_pairs[static_cast<size_t>(plan->list(b, h))],
                dense.legal_pairs);
    }
  }
  return *plan;
}

std::string error_of(const RandomCase& c) {
  const Result<Request> request = c.request();
  if (!request.ok()) return request.error().message;
  const Facts facts = c.facts();
  const Result<Plan> plan = plan::make_plan(*request, facts);
  const Result<Legality> legality = Legality::bind(*request, facts);
  EXPECT_EQ(plan.ok(), legality.ok());
  return plan.ok() ? "" : plan.error().message;
}

TEST(Regression, FullMaskWithABatchOfDifferentCounts) {
  RandomCase c = square(full(), 16);
  c.batch = 4;
  c.valid_tokens = Ids{16, 8, 3, 0};
  const Plan plan = planned(c);
  EXPECT_EQ(grid(plan, 0), "22 22");
  EXPECT_EQ(grid(plan, 1), "20 00");
  EXPECT_EQ(grid(plan, 2), "10 00");
  EXPECT_EQ(grid(plan, 3), "00 00");
  EXPECT_EQ(plan.legal_pairs, (std::vector<int64_t>{256, 64, 9, 0}));
  ASSERT_EQ(plan.warnings.size(), 1u);  // row 3 has no live query
  EXPECT_NE(plan.warnings[0].find("row 3"), std::string::npos);
}

TEST(Regression, AFullyMaskedQueryInsideALiveTile) {
  RandomCase c = square(causal() & documents(), 16);
  c.doc_ids = Ids(16, 0);
  (*c.doc_ids)[12] = -1;
  const Plan plan = planned(c);
  EXPECT_EQ(grid(plan), "10 11");  // the tile below the diagonal is not full
  EXPECT_EQ(plan.legal_pairs[0], 136 - 13 - 3);
}

TEST(Regression, ATileRowAndAColumnWithNothingLive) {
  RandomCase c = square(documents(), 32);
  c.doc_ids = Ids(32, 0);
  for (size_t j = 8; j < 16; ++j) (*c.doc_ids)[j] = -1;
  const Plan plan = planned(c);
  EXPECT_EQ(grid(plan), "2022 0000 2022 2022");
  EXPECT_TRUE(plan.forward.row(0, 1).empty());
  EXPECT_TRUE(plan.transposed.row(0, 1).empty());
  EXPECT_EQ(plan.transposed.row(0, 2).size(), 3u);
}

TEST(Regression, RowsAtBothEndsWithNothingLive) {
  // The windows of the first rows end before the keys, so these rows are empty;
  // the valid count cuts off the last rows.
  RandomCase c = square(window(3, -1) & !window(-1, 8), 40);
  c.valid_tokens = Ids{23};
  const Plan plan = planned(c);
  EXPECT_TRUE(plan.forward.row(0, 3).empty());
  EXPECT_TRUE(plan.forward.row(0, 4).empty());
  EXPECT_TRUE(plan.transposed.row(0, 0).empty());
}

TEST(Regression, AComputedMaskThatIsFullEverywhere) {
  for (const Expr& mask :
       {window(INT32_MAX, INT32_MAX), chunk(INT32_MAX), window(-1, -1),
        sink(INT32_MAX), causal() | !causal(), window(99, 99) & chunk(99)}) {
    RandomCase c = square(mask, 21);
    EXPECT_EQ(grid(planned(c)), "222 222 222") << spell(mask);
    c.q_len = 3;
    EXPECT_EQ(grid(planned(c)), "222") << spell(mask);
  }
}

TEST(Regression, AMaskThatIsEmptyEverywhere) {
  for (const Expr& mask :
       {!full(), causal() & !causal(), sink(0), window(0, 0) & !window(0, 0)}) {
    const Plan plan = planned(square(mask, 21));
    EXPECT_EQ(grid(plan), "000 000 000") << spell(mask);
    EXPECT_TRUE(plan.warnings.empty()) << "no veto forbids these queries";
  }
}

TEST(Regression, PaddingDoesNotAttendToPadding) {
  RandomCase c = square(documents(), 24);
  c.doc_ids = Ids(24, -1);
  for (size_t j = 0; j < 8; ++j) (*c.doc_ids)[j] = 4;
  EXPECT_EQ(grid(planned(c)), "200 000 000");
  c.masks = {segments()};
  EXPECT_EQ(grid(planned(c)), "200 000 000");
  c.masks = {!documents()};  // a negation does not lift the veto
  EXPECT_EQ(grid(planned(c)), "000 000 000");
  c.masks = {full() | documents()};  // nor does a name that folds away
  EXPECT_EQ(grid(planned(c)), "200 000 000");
  c.masks = {causal() | !full() | (segments() & !full())};
  EXPECT_EQ(grid(planned(c)), "100 000 000");
}

TEST(Regression, DifferentNegativeIdsAreAllPadding) {
  RandomCase c = square(full() | documents(), 8);
  c.doc_ids = Ids{-1, -2, INT32_MIN, INT32_MAX, 0, -1, -7, 3};
  EXPECT_EQ(planned(c).legal_pairs[0], 9);
}

TEST(Regression, RaggedTailsAreJudgedOnRealTokens) {
  // 19 x 19 in tiles of 8: the last row and column have three tokens.
  Plan plan = planned(square(full(), 19));
  EXPECT_EQ(grid(plan), "222 222 222");
  EXPECT_EQ(plan.legal_pairs[0], 361);
  plan = planned(square(causal(), 19));
  EXPECT_EQ(grid(plan), "100 210 221");
  EXPECT_EQ(plan.legal_pairs[0], 190);
  // A tile far larger than the row is one ragged tile.
  plan = planned(square(full(), 3, 4096));
  EXPECT_EQ(grid(plan), "2");
  EXPECT_EQ(plan.legal_pairs[0], 9);
}

TEST(Regression, ADocumentThatComesBack) {
  RandomCase c = square(documents(), 24);
  c.doc_ids = Ids(24, 0);
  for (size_t j = 8; j < 16; ++j) (*c.doc_ids)[j] = 1;
  EXPECT_EQ(grid(planned(c)), "202 020 202");
  c.masks = {segments()};
  EXPECT_EQ(grid(planned(c)), "200 020 002");
  // The sink of document 0 is its first tokens, for queries of both runs.
  c.masks = {documents() & sink(4)};
  EXPECT_EQ(grid(planned(c)), "100 010 100");
  c.masks = {segments() & sink(4)};
  EXPECT_EQ(grid(planned(c)), "100 010 001");
  c.masks = {documents() & sink(12)};  // the sink continues in the second run
  EXPECT_EQ(grid(planned(c)), "201 020 201");
  c.masks = {segments() & sink(12)};
  EXPECT_EQ(grid(planned(c)), "200 020 002");
}

TEST(Regression, AZeroCountIsNotAnAbsentCount) {
  RandomCase c = square(causal(), 16);
  EXPECT_EQ(grid(planned(c)), "10 21");
  c.valid_tokens = Ids{0};
  const Plan plan = planned(c);
  EXPECT_EQ(grid(plan), "00 00");
  EXPECT_EQ(plan.warnings.size(), 1u);
  c.valid_tokens = Ids{16};
  EXPECT_TRUE(planned(c).warnings.empty());
  c.valid_tokens.reset();
  c.base_block_tokens = 4;
  c.valid_slots = Ids{0};
  EXPECT_EQ(grid(planned(c)), "00 00");
}

TEST(Regression, ACountDoesNotMoveTheDefaultOffset) {
  // The queries stand at 12 to 15 of 16 keys, of which 14 are valid. An offset
  // of count - q_len would put them at 10 to 13.
  RandomCase c = square(causal(), 16);
  c.q_len = 4;
  c.valid_tokens = Ids{14};
  const Plan plan = planned(c);
  EXPECT_EQ(plan.legal_pairs[0], 13 + 14);
}

TEST(Regression, SlotsAreWholeBlocksOfTokens) {
  RandomCase c = square(full(), 21);
  c.base_block_tokens = 8;
  c.valid_slots = Ids{2};
  EXPECT_EQ(grid(planned(c)), "220 220 000");
  c.valid_slots = Ids{3};  // 24 tokens, limited to the 21 there are
  EXPECT_EQ(grid(planned(c)), "222 222 222");
  c.valid_tokens = Ids{9};  // with both, the smaller
  EXPECT_EQ(grid(planned(c)), "210 110 000");
  c.valid_tokens = Ids{20};
  c.valid_slots = Ids{1};
  EXPECT_EQ(grid(planned(c)), "200 000 000");
}

TEST(Regression, OneQueryAgainstALongCache) {
  RandomCase c = square(causal() & window(15, 0), 1);
  c.kv_len = 1000;
  EXPECT_EQ(planned(c).legal_pairs[0], 16);
  c.masks = {causal()};
  Plan plan = planned(c);
  EXPECT_EQ(plan.forward.row(0, 0).size(), 125u);
  EXPECT_EQ(plan.legal_pairs[0], 1000);
  c.batch = 2;
  c.q_offsets = Ids{0, 512};
  plan = planned(c);
  EXPECT_EQ(plan.legal_pairs, (std::vector<int64_t>{1, 513}));
}

TEST(Regression, ManyQueriesAgainstOneKey) {
  RandomCase c = square(causal(), 20);
  c.kv_len = 1;  // positions -19 to 0
  const Plan plan = planned(c);
  EXPECT_EQ(grid(plan), "0 0 1");
  EXPECT_EQ(plan.legal_pairs[0], 1);
}

TEST(Regression, ChunksOfNegativePositionsHoldNoKey) {
  RandomCase c = square(chunk(8), 16);
  c.q_offsets = Ids{-8};
  EXPECT_EQ(grid(planned(c)), "00 20");
  c.q_offsets = Ids{-3};  // truncation would put three queries in chunk 0
  EXPECT_EQ(grid(planned(c)), "10 11");
  EXPECT_EQ(planned(c).legal_pairs[0], 8 * 8 + 5 * 8);
}

TEST(Regression, QueriesFarFromTheKeys) {
  for (const int32_t offset : {1 << 30, -(1 << 30)}) {
    RandomCase c = square(causal() | window(2, 5), 16);
    c.q_offsets = Ids{offset};
    EXPECT_EQ(grid(planned(c)), offset > 0 ? "22 22" : "00 00");
    c.masks = {(!causal()) & chunk(INT32_MAX)};
    planned(c);
    c.masks = {!window(INT32_MAX, INT32_MAX)};
    EXPECT_EQ(grid(planned(c)), "00 00");
  }
}

TEST(Regression, VetoedQueriesNeedNoId) {
  RandomCase c = square(causal() & documents(), 16);
  c.doc_ids = Ids(16, 1);
  c.q_offsets = Ids{8};
  EXPECT_EQ(error_of(c).substr(0, 7), "[facts]");  // 16 to 23 have no ids
  c.valid_tokens = Ids{16};                        // now these are vetoed
  EXPECT_EQ(grid(planned(c)), "21 00");
  c.q_offsets = Ids{-1};  // no count vetoes a query before the keys
  EXPECT_EQ(error_of(c).substr(0, 7), "[facts]");
  c.valid_tokens = Ids{0};
  EXPECT_EQ(error_of(c).substr(0, 7), "[facts]");
  c.q_doc_ids = Ids(16, 1);  // own ids need no position
  EXPECT_EQ(error_of(c), "");
}

TEST(Regression, ANamedAtomNeedsItsFactEvenWhereItFoldsAway) {
  for (const Expr& atom : {documents(), segments(), prefix(), blocks(8)}) {
    EXPECT_EQ(error_of(square(atom, 16)).substr(0, 7), "[facts]");
    EXPECT_EQ(error_of(square(full() | atom, 16)).substr(0, 7), "[facts]");
    EXPECT_EQ(error_of(square((!full()) & !atom, 16)).substr(0, 7), "[facts]");
  }
}

TEST(Regression, SegmentsHaveNoPlaceForQueryIds) {
  RandomCase c = square(segments(), 8);
  c.doc_ids = Ids(8, 0);
  c.q_doc_ids = Ids(8, 0);
  EXPECT_EQ(error_of(c).substr(0, 7), "[facts]");
}

TEST(Regression, NamesInOneGroupDoNotVetoAnother) {
  RandomCase c = square(documents(), 16);
  c.masks = {documents(), causal() | sink(2)};
  c.doc_ids = Ids(16, -1);
  const Plan plan = planned(c);
  EXPECT_EQ(grid(plan, 0), "00 00");
  EXPECT_EQ(grid(plan, 1), "10 21");
  EXPECT_TRUE(plan.warnings.empty()) << "the second group's queries live";
}

TEST(Regression, FewerPickHeadsThanMasksServeNeighbours) {
  RandomCase c = square(blocks(8), 16);
  c.masks = {blocks(8), !blocks(8), blocks(8), !blocks(8)};
  c.pick_heads = 2;
  c.pick_k = 1;
  c.picks = Ids(16, 0);
  c.picks->insert(c.picks->end(), 16, 1);
  const Plan plan = planned(c);
  ASSERT_EQ(plan.heads, 4);
  EXPECT_EQ(grid(plan, 0), "20 20");
  EXPECT_EQ(grid(plan, 1), "02 02");
  EXPECT_EQ(grid(plan, 2), "02 02");
  EXPECT_EQ(grid(plan, 3), "20 20");
}

TEST(Regression, ASinkFollowsANameThatFoldsAway) {
  // A, B, A in one tile. The canonical form is sink(1) alone, but the sink
  // still goes by segments.
  RandomCase c = square(sink(1) & (full() | segments()), 8);
  c.doc_ids = Ids{0, 0, 0, 1, 1, 0, 0, 0};
  EXPECT_EQ(planned(c).legal_pairs[0], 8);
  c.masks = {sink(4) & (full() | segments())};
  EXPECT_EQ(planned(c).legal_pairs[0], 9 + 4 + 9);
  c.masks = {sink(4) & (full() | documents())};
  EXPECT_EQ(planned(c).legal_pairs[0], 6 * 4 + 4);
  c.masks = {sink(4) | (documents() & segments() & !full())};
  EXPECT_EQ(planned(c).legal_pairs[0], 9 + 4 + 9);
}

TEST(Regression, HeadsThatDoNotDivideAreRefused) {
  RandomCase c = square(blocks(8), 8);
  c.masks = {blocks(8), causal()};
  c.pick_heads = 3;
  c.pick_k = 1;
  c.picks = Ids(24, 0);
  EXPECT_EQ(error_of(c).substr(0, 9), "[request]");
  c.masks = {full(), causal()};  // no mask reads the picks
  EXPECT_EQ(error_of(c), "");
}

TEST(Regression, PicksMayRepeatAndComeInAnyOrder) {
  RandomCase c = square(blocks(8), 24);
  c.pick_k = 3;
  for (int64_t i = 0; i < 24; ++i) {
    if (!c.picks) c.picks.emplace();
    c.picks->insert(c.picks->end(), {2, 0, 2});
  }
  EXPECT_EQ(grid(planned(c)), "202 202 202");
  c.masks = {!blocks(8)};
  EXPECT_EQ(grid(planned(c)), "020 020 020");
}

// A mask of every odd distance up to 61 has 63 different bounds; then one more
// is refused.
TEST(Regression, AsManyBoundsAsAMaskMayHold) {
  Expr stripes = causal() & !causal();
  for (int64_t d = 1; d <= 61; d += 2) {
    stripes = stripes | (window(d, -1) & !window(d - 1, -1));
  }
  RandomCase c = square(stripes, 100);
  EXPECT_EQ(planned(c).legal_pairs[0], 31 * 100 - 31 * 31);
  c.masks = {stripes | (window(62, -1) & !window(61, -1))};
  const Result<Plan> plan = plan::make_plan(*c.request(), {});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().kind, ErrorKind::limit);
}

TEST(Regression, AsManyKeyAtomsAsAMaskMayHold) {
  Expr corners = !full();
  for (int64_t n = 1; n <= 64; ++n) corners = corners | (chunk(n) & causal());
  RandomCase c = square(corners, 80);
  planned(c);
  Expr sinks = full();
  for (int64_t n = 1; n <= 42; ++n) {
    sinks = sinks & (n % 2 == 1 ? !sink(n) : sink(n) | chunk(n - 1));
  }
  c.masks = {sinks};
  planned(c);
  c.masks = {corners | chunk(65)};
  const Result<Plan> plan = plan::make_plan(*c.request(), {});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().kind, ErrorKind::limit);
}

// The planner must refuse invalid masks that make_mask did not make.
TEST(Regression, MasksMadeByHandAreChecked) {
  const auto error_for = [](const Expr& expr, const Names& names) {
    Request request;
    request.q_len = request.kv_len = 32;
    request.tile = {8, 8};
    request.masks = {Mask{expr, names}};
    const Result<Plan> plan = plan::make_plan(request, {});
    EXPECT_EQ(Legality::bind(request, {}).ok(), plan.ok());
    return plan.ok() ? "" : plan.error().message;
  };
  Expr no_operand = !full();
  no_operand.children.clear();
  Expr crowded = full() | full();
  crowded.children.resize(100000, full());
  Expr leafy = full();
  leafy.children = {full()};
  Expr deep = full();
  for (int i = 0; i < 1000; ++i) deep = !std::move(deep);
  for (const Expr& expr :
       {documents(), segments(), prefix(), blocks(8), chunk(0), no_operand,
        Expr{Atom::op_and, 0, 0, {}}, Expr{static_cast<Atom>(200), 0, 0, {}},
        crowded, leafy, deep, window(-5, INT64_MIN), sink(INT64_MAX),
        blocks(8) & routed(1, 9)}) {
    EXPECT_EQ(error_for(expr, {}).substr(0, 6), "[mask]");
  }
  Names names;
  names.picks = true;  // with blocks of 0 keys
  EXPECT_EQ(error_for(full(), names),
            "[mask] block of the picks must be from 1 to 2147483647, found 0");
  names.picks_block = 16;
  EXPECT_EQ(error_for(blocks(8), names),
            "[mask] names must hold the block of the picks, found 16 for "
            "blocks(8)");
  EXPECT_EQ(error_for(documents(), {}),
            "[mask] names must hold all that the expression names, found no "
            "documents for documents");
  EXPECT_EQ(error_for(full(), {}), "");
}

// Lengths that no dense method can hold; the sums have a closed form.
TEST(Regression, HugeRowsKeepTheirSums) {
  Request request;
  request.q_len = request.kv_len = kMaxTokens;
  request.tile = {4096, 4096};
  request.masks = {*make_mask(causal() & window(10, 0))};
  Result<Plan> plan = plan::make_plan(request, {});
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const int64_t rows = kMaxTokens / 4096;
  EXPECT_EQ(plan->forward.entries.size(), static_cast<size_t>(2 * rows - 1));
  EXPECT_EQ(plan->legal_pairs[0], 11 * kMaxTokens - 55);

  request.q_len = 1;
  request.masks = {*make_mask(causal())};
  plan = plan::make_plan(request, {});
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->legal_pairs[0], kMaxTokens);
  EXPECT_EQ(plan->forward.entries.size(), static_cast<size_t>(rows));

  // More tile rows than a plan can hold is a typed error, before any work.
  request.q_len = kMaxTokens;
  request.tile = {8, 8};
  request.batch = 4;
  plan = plan::make_plan(request, {});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().kind, ErrorKind::limit);
}

}  // namespace
}  // namespace tessera::testing
