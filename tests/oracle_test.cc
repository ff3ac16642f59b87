// tests/oracle_test.cc: the oracle against small tables worked out by hand.
#include "tests/oracle.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/random_case.h"

namespace tessera::testing {
namespace {

using Table = std::vector<std::string>;  // '#' legal, '.' not; a line a query

Table table_of(const RandomCase& c, int64_t b = 0, int64_t head = 0) {
  const Facts facts = c.facts();
  const Oracle oracle(c.masks, c.shape(), facts);
  Table table;
  for (int64_t i = 0; i < c.q_len; ++i) {
    std::string line;
    for (int64_t j = 0; j < c.kv_len; ++j) {
      line += oracle.legal(b, head, i, j) ? '#' : '.';
    }
    table.push_back(line);
  }
  return table;
}

RandomCase square(Expr mask, int64_t n = 6) {
  RandomCase c;
  c.masks = {std::move(mask)};
  c.q_len = n;
  c.kv_len = n;
  return c;
}

using Ids = std::vector<int32_t>;

TEST(Oracle, CausalIsKeyUpToPosition) {
  EXPECT_EQ(table_of(square(causal())), (Table{"#.....",  //
                                               "##....",  //
                                               "###...",  //
                                               "####..",  //
                                               "#####.",  //
                                               "######"}));
}

TEST(Oracle, QueriesStandAtTheEndOfTheKeysByDefault) {
  RandomCase c = square(causal());
  c.q_len = 2;
  EXPECT_EQ(table_of(c), (Table{"#####.", "######"}));
  c.q_offsets = Ids{1};
  EXPECT_EQ(table_of(c), (Table{"##....", "###..."}));
  c.q_offsets = Ids{-1};
  EXPECT_EQ(table_of(c), (Table{"......", "#....."}));
}

TEST(Oracle, WindowDistancesAreInclusive) {
  EXPECT_EQ(table_of(square(window(1, 0))), (Table{"#.....",  //
                                                   "##....",  //
                                                   ".##...",  //
                                                   "..##..",  //
                                                   "...##.",  //
                                                   "....##"}));
  EXPECT_EQ(table_of(square(window(0, 2))), (Table{"###...",  //
                                                   ".###..",  //
                                                   "..###.",  //
                                                   "...###",  //
                                                   "....##",  //
                                                   ".....#"}));
}

TEST(Oracle, WindowMinusOneIsOff) {
  EXPECT_EQ(table_of(square(window(-1, 0))), table_of(square(causal())));
  EXPECT_EQ(table_of(square(window(-1, -1))), table_of(square(full())));
  EXPECT_EQ(table_of(square(window(0, -1))), (Table{"######",  //
                                                    ".#####",  //
                                                    "..####",  //
                                                    "...###",  //
                                                    "....##",  //
                                                    ".....#"}));
}

TEST(Oracle, ChunkDividesByFloor) {
  EXPECT_EQ(table_of(square(chunk(4))), (Table{"####..",  //
                                               "####..",  //
                                               "####..",  //
                                               "####..",  //
                                               "....##",  //
                                               "....##"}));
  // Positions -3 to 2: chunk -1 has no key; truncation would give chunk 0.
  RandomCase c = square(chunk(4));
  c.q_offsets = Ids{-3};
  EXPECT_EQ(table_of(c), (Table{"......",  //
                                "......",  //
                                "......",  //
                                "####..",  //
                                "####..",  //
                                "####.."}));
}

TEST(Oracle, FloorDivisionOfNegativeNumbers) {
  EXPECT_EQ(floor_divide(-1, 4), -1);
  EXPECT_EQ(floor_divide(-4, 4), -1);
  EXPECT_EQ(floor_divide(-5, 4), -2);
  EXPECT_EQ(floor_divide(0, 4), 0);
  EXPECT_EQ(floor_divide(7, 4), 1);
}

TEST(Oracle, PrefixIsAFactOfTheRow) {
  RandomCase c = square(causal() | prefix(), 4);
  c.batch = 2;
  c.prefix = Ids{2, 0};
  EXPECT_EQ(table_of(c, 0), (Table{"##..", "##..", "###.", "####"}));
  EXPECT_EQ(table_of(c, 1), (Table{"#...", "##..", "###.", "####"}));
}

TEST(Oracle, DocumentsAndSegmentsPartWaysOnRepeatedIds) {
  RandomCase c = square(documents());
  c.doc_ids = Ids{5, 5, 3, 5, 5, -1};
  EXPECT_EQ(table_of(c), (Table{"##.##.",  //
                                "##.##.",  //
                                "..#...",  //
                                "##.##.",  //
                                "##.##.",  //
                                "......"}));
  c.masks = {segments()};
  EXPECT_EQ(table_of(c), (Table{"##....",  //
                                "##....",  //
                                "..#...",  //
                                "...##.",  //
                                "...##.",  //
                                "......"}));
}

TEST(Oracle, QueriesTakeTheirOwnIdsWhereGiven) {
  RandomCase c = square(documents());
  c.q_len = 3;
  c.doc_ids = Ids{0, 0, 1, 1, 1, -1};
  c.q_doc_ids = Ids{1, -1, 0};
  EXPECT_EQ(table_of(c), (Table{"..###.", "......", "##...."}));
}

TEST(Oracle, SinkAloneIsTheFirstKeys) {
  EXPECT_EQ(table_of(square(sink(2), 3)), (Table{"##.", "##.", "##."}));
  EXPECT_EQ(table_of(square(sink(0), 2)), (Table{"..", ".."}));
}

TEST(Oracle, SinkBesideDocumentsCountsTheirKeysOverAllRuns) {
  // Document 7 is keys 0, 3, 4; its first two are 0 and 3.
  RandomCase c = square(sink(2) & documents());
  c.doc_ids = Ids{7, 8, 8, 7, 7, 8};
  const Table by_document = {"#..#..",  //
                             ".##...",  //
                             ".##...",  //
                             "#..#..",  //
                             "#..#..",  //
                             ".##..."};
  EXPECT_EQ(table_of(c), by_document);
  // The name `documents` decides, even if the atom changes nothing.
  c.masks = {sink(2) & (full() | documents())};
  EXPECT_EQ(table_of(c), by_document);
  // If both are named, segments decide. The runs are 0 | 1 2 | 3 4 | 5.
  c.masks = {sink(1) & (full() | documents() | segments())};
  EXPECT_EQ(table_of(c), (Table{"#.....",  //
                                ".#....",  //
                                ".#....",  //
                                "...#..",  //
                                "...#..",  //
                                ".....#"}));
}

TEST(Oracle, BlocksAreWhatEachQueryPicked) {
  RandomCase c = square(blocks(2));
  c.q_len = 3;
  c.pick_heads = 2;
  c.pick_k = 2;
  c.picks = Ids{0, -1, 2, 1, -1, -1,  //
                1, 1,  0, 2, 2,  -1};
  EXPECT_EQ(table_of(c, 0, 0), (Table{"##....", "..####", "......"}));
  EXPECT_EQ(table_of(c, 0, 1), (Table{"..##..", "##..##", "....##"}));
  c.masks = {routed(2, 2)};
  EXPECT_EQ(table_of(c, 0, 1), (Table{"..##..", "##..##", "....##"}));
}

TEST(Oracle, HeadsAreGroupsOfMasksAndPicks) {
  // Four pick heads and two masks: heads 0, 1 take the first mask.
  RandomCase c = square(blocks(1), 2);
  c.masks = {blocks(1), causal()};
  c.pick_heads = 4;
  c.pick_k = 1;
  c.picks = Ids{0, 0, 1, 1, 0, 1, 1, 0};
  const Facts facts = c.facts();
  EXPECT_EQ(Oracle(c.masks, c.shape(), facts).heads(), 4);
  EXPECT_EQ(table_of(c, 0, 0), (Table{"#.", "#."}));
  EXPECT_EQ(table_of(c, 0, 1), (Table{".#", ".#"}));
  EXPECT_EQ(table_of(c, 0, 2), (Table{"#.", "##"}));
  EXPECT_EQ(table_of(c, 0, 3), (Table{"#.", "##"}));
  // Pick heads that no mask reads do not count.
  c.masks = {causal(), full()};
  EXPECT_EQ(Oracle(c.masks, c.shape(), facts).heads(), 2);
}

TEST(Oracle, FewerPickHeadsThanMasksServeNeighbours) {
  // Two pick heads and four masks: heads 0, 1 read the first, 2, 3 the second.
  RandomCase c = square(blocks(1), 2);
  c.masks = {blocks(1), !blocks(1), blocks(1), !blocks(1)};
  c.pick_heads = 2;
  c.pick_k = 1;
  c.picks = Ids{0, 0, 1, 1};
  EXPECT_EQ(table_of(c, 0, 0), (Table{"#.", "#."}));
  EXPECT_EQ(table_of(c, 0, 1), (Table{".#", ".#"}));
  EXPECT_EQ(table_of(c, 0, 2), (Table{".#", ".#"}));
  EXPECT_EQ(table_of(c, 0, 3), (Table{"#.", "#."}));
}

TEST(Oracle, CountsVetoKeysAndQueriesWhateverTheMaskSays) {
  RandomCase c = square(full() | !causal(), 4);
  c.valid_tokens = Ids{3};
  EXPECT_EQ(table_of(c), (Table{"###.", "###.", "###.", "...."}));
  c.valid_tokens = Ids{0};
  EXPECT_EQ(table_of(c), (Table{"....", "....", "....", "...."}));
  // The count does not veto queries that stand before the keys.
  c.valid_tokens = Ids{1};
  c.q_offsets = Ids{-2};
  EXPECT_EQ(table_of(c), (Table{"#...", "#...", "#...", "...."}));
  // Without a count there is no veto: queries may stand past the keys.
  c.valid_tokens.reset();
  c.q_offsets = Ids{9};
  EXPECT_EQ(table_of(c), (Table{"####", "####", "####", "####"}));
}

TEST(Oracle, SlotCountsAreTokensOfWholeBlocks) {
  RandomCase c = square(full(), 5);
  c.base_block_tokens = 2;
  c.valid_slots = Ids{1};
  EXPECT_EQ(table_of(c), (Table{"##...", "##...", ".....", ".....", "....."}));
  c.valid_slots = Ids{3};  // six tokens, of which five exist
  EXPECT_EQ(table_of(c), table_of(square(full(), 5)));
  c.valid_tokens = Ids{1};  // the smaller count holds
  EXPECT_EQ(table_of(c), (Table{"#....", ".....", ".....", ".....", "....."}));
}

TEST(Oracle, NegativeIdsVetoEvenUnderNot) {
  RandomCase c = square(!documents(), 4);
  c.doc_ids = Ids{0, -1, -1, 1};
  EXPECT_EQ(table_of(c), (Table{"...#", "....", "....", "#..."}));
  c.masks = {full() | documents()};
  EXPECT_EQ(table_of(c), (Table{"#..#", "....", "....", "#..#"}));
  c.masks = {full()};
  EXPECT_EQ(table_of(c), (Table{"####", "####", "####", "####"}));
}

TEST(Oracle, OperatorsOnASmallTable) {
  EXPECT_EQ(table_of(square(causal() & !window(1, 0), 4)),
            (Table{"....", "....", "#...", "##.."}));
  EXPECT_EQ(table_of(square(sink(1) | (causal() & window(0, 0)), 4)),
            (Table{"#...", "##..", "#.#.", "#..#"}));
}

TEST(Oracle, ClassesOnRaggedTiles) {
  // 11 x 11 causal in tiles of 8 x 9: the last row tile is queries 8 to 10.
  RandomCase c = square(causal(), 11);
  c.tile = {8, 9};
  const Facts facts = c.facts();
  const Oracle oracle(c.masks, c.shape(), facts);
  const DenseClasses dense = oracle.classes(0, 0);
  ASSERT_EQ(dense.rows, 2);
  ASSERT_EQ(dense.columns, 2);
  EXPECT_EQ(dense.at(0, 0), TileClass::partial);
  EXPECT_EQ(dense.at(0, 1), TileClass::empty);
  EXPECT_EQ(dense.at(1, 0), TileClass::full);
  EXPECT_EQ(dense.at(1, 1), TileClass::partial);
  EXPECT_EQ(dense.legal_pairs, 66);
}

TEST(RandomCases, AreWellFormedAndVaried) {
  int documented = 0, repeated = 0, counted = 0, picked = 0, negative = 0,
      branched = 0, named = 0;
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    const RandomCase c = random_case(seed);
    ASSERT_TRUE(well_formed(c)) << describe(c);
    ASSERT_EQ(describe(c), describe(random_case(seed)));
    documented += c.doc_ids.has_value();
    repeated += c.masks.size() > 1;
    counted += c.valid_tokens || c.valid_slots;
    picked += c.picks.has_value();
    branched += c.tree_enter.has_value();
    named += c.same_a || c.same_b;
    if (c.q_offsets) {
      for (const int32_t offset : *c.q_offsets) negative += offset < 0;
    }
  }
  for (const int seen :
       {documented, repeated, counted, picked, negative, branched, named}) {
    EXPECT_GT(seen, 300);
  }
}

TEST(RandomCases, ShrinkKeepsTheFailureAndLosesTheRest) {
  // A case "fails" if some query may attend to a key of another document.
  const Failing fails = [](const RandomCase& c) -> std::optional<std::string> {
    if (!c.doc_ids || c.q_doc_ids) return std::nullopt;
    const Facts facts = c.facts();
    const Oracle oracle(c.masks, c.shape(), facts);
    for (int64_t b = 0; b < c.batch; ++b) {
      const int64_t offset = c.q_offsets
                                 ? (*c.q_offsets)[static_cast<size_t>(b)]
                                 : c.kv_len - c.q_len;
      for (int64_t i = 0; i < c.q_len; ++i) {
        if (i + offset < 0 || i + offset >= c.kv_len) continue;
        for (int64_t j = 0; j < c.kv_len; ++j) {
          const auto at = static_cast<size_t>(b * c.kv_len);
          if ((*c.doc_ids)[at + static_cast<size_t>(i + offset)] !=
                  (*c.doc_ids)[at + static_cast<size_t>(j)] &&
              oracle.legal(b, 0, i, j)) {
            return "crosses";
          }
        }
      }
    }
    return std::nullopt;
  };
  int shrunk = 0;
  for (uint64_t seed = 0; shrunk < 5; ++seed) {
    const RandomCase c = random_case(seed);
    if (!fails(c)) continue;
    ++shrunk;
    const RandomCase small = shrink(c, fails);
    EXPECT_TRUE(well_formed(small)) << describe(small);
    EXPECT_TRUE(fails(small)) << describe(small);
    EXPECT_EQ(small.batch, 1) << describe(small);
    EXPECT_LE(small.q_len * small.kv_len, 16) << describe(small);
  }
}

}  // namespace
}  // namespace tessera::testing
