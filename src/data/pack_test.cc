// The packer against slow oracles: every token is in one row with room, and
// rows follow the definition of each strategy.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include "base/fail.h"
#include "data/balance.h"
#include "data/fit.h"
#include "tessera/batch.h"
#include "tessera/data.h"
#include "tests/random_case.h"

namespace tessera::data {
namespace {

using Lengths = std::vector<int32_t>;

constexpr PackStrategy kStrategies[] = {
    PackStrategy::in_order, PackStrategy::first_fit, PackStrategy::best_fit,
    PackStrategy::by_cost};
constexpr LongDocuments kRules[] = {
    LongDocuments::split, LongDocuments::keep_head, LongDocuments::keep_tail,
    LongDocuments::drop};

Lengths lognormal(size_t n, double mean, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::lognormal_distribution<double> draw(std::log(mean) - 0.5, 1);
  Lengths lengths(n);
  for (int32_t& l : lengths) l = std::max(1, static_cast<int>(draw(random)));
  return lengths;
}

struct Case {
  Lengths lengths;
  PackOptions options;
};

// Cases with empty documents, documents of many rows, and windows of a few.
Case random_pack(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  Case c;
  c.options.tokens = 8 + below(60);
  c.options.tile = {8, 8};
  c.options.window_rows = 1 + below(20);
  c.options.rows_per_step = 1 + below(5);
  c.options.mixing = below(2) == 0 ? 0 : 0.3;
  c.options.seed = random();
  c.options.strategy = kStrategies[below(4)];
  if (c.options.strategy != PackStrategy::by_cost) c.options.mixing = 0;
  c.options.long_documents = kRules[below(4)];
  const int64_t longest = 1 + below(c.options.tokens * 4);
  c.lengths.resize(static_cast<size_t>(below(200)));
  for (int32_t& l : c.lengths) {
    l = below(6) == 0 ? 0 : static_cast<int32_t>(below(longest + 1));
  }
  return c;
}

// The first fault found, or "".
std::string fault(const Case& c, const Packing& packing) {
  const int64_t t = c.options.tokens;
  std::vector<std::vector<int>> seen;
  for (const int32_t l : c.lengths) {
    seen.emplace_back(static_cast<size_t>(l), 0);
  }
  int64_t out = 0;
  for (int64_t r = 0; r < packing.rows(); ++r) {
    int64_t used = 0;
    if (packing.row(r).empty()) return "an empty row";
    for (const DocumentPart& p : packing.row(r)) {
      used += p.length;
      if (p.length < 1) return "an empty part";
      for (int32_t i = 0; i < p.length; ++i) {
        ++seen.at(static_cast<size_t>(p.document))
              .at(static_cast<size_t>(p.offset + i));
      }
    }
    if (used > t) return "a row is too long";
    std::set<int64_t> documents;
    for (const DocumentPart& p : packing.row(r)) {
      if (!documents.insert(p.document).second) return "one document twice";
    }
    out += used;
  }
  int64_t in = 0, dropped = 0;
  for (size_t d = 0; d < seen.size(); ++d) {
    const auto n = static_cast<int64_t>(seen[d].size());
    in += n;
    int64_t from = 0, to = n;  // the tokens that must be in rows
    if (n > t) {
      if (c.options.long_documents == LongDocuments::keep_head) to = t;
      if (c.options.long_documents == LongDocuments::keep_tail) from = n - t;
      if (c.options.long_documents == LongDocuments::drop) to = 0;
    }
    dropped += n - (to - from);
    for (int64_t i = 0; i < n; ++i) {
      if (seen[d][static_cast<size_t>(i)] != (i >= from && i < to ? 1 : 0)) {
        return fmt::format("token {} of document {} lies in {} rows", i, d,
                           seen[d][static_cast<size_t>(i)]);
      }
    }
  }
  const PackAccount& a = packing.account;
  if (a.tokens_in != in || a.tokens_out != out || a.tokens_dropped != dropped ||
      a.documents != static_cast<int64_t>(c.lengths.size()) ||
      a.empty_documents != std::count(c.lengths.begin(), c.lengths.end(), 0) ||
      a.rows != packing.rows() || a.padding != packing.rows() * t - out ||
      a.parts != static_cast<int64_t>(packing.parts.size())) {
    return "the account is wrong";
  }
  return "";
}

TEST(Pack, EveryTokenLiesInOneRow) {
  const uint64_t first = testing::first_seed(1);
  for (int64_t i = 0; i < testing::case_count(2000); ++i) {
    const Case c = random_pack(first + static_cast<uint64_t>(i));
    const auto packing = pack(c.lengths, c.options);
    ASSERT_TRUE(packing) << packing.error().message;
    ASSERT_EQ(fault(c, *packing), "") << "seed " << first + i;
    EXPECT_TRUE(packing->account.sums(c.options.tokens));
    EXPECT_EQ(*packing, *pack(c.lengths, c.options));
  }
}

TEST(Pack, TheCheckNoticesALostToken) {
  const Case c{{3, 4, 5}, {}};
  Packing packing = *pack(c.lengths, c.options);
  ASSERT_EQ(fault(c, packing), "");
  packing.parts[1].offset = 1;
  --packing.parts[1].length;
  EXPECT_NE(fault(c, packing), "");
  EXPECT_FALSE(PackAccount{}.sums(8) && PackAccount{.tokens_in = 1}.sums(8));
}

TEST(Pack, WindowAfterWindowIsTheSame) {
  for (uint64_t seed = 1; seed < 200; ++seed) {
    const Case c = random_pack(seed);
    Packing apart;
    apart.tokens = c.options.tokens;
    PackState state;
    size_t at = 0;
    while (at < c.lengths.size()) {
      const std::span<const int32_t> rest(c.lengths.data() + at,
                                          c.lengths.size() - at);
      const auto n = static_cast<size_t>(*next_window(rest, c.options));
      ASSERT_GT(n, 0u);
      const PackState copy = state;  // as if it was saved and restored
      state = copy;
      const auto packed = pack_window(rest.first(n), static_cast<int64_t>(at),
                                      c.options, state, apart);
      ASSERT_TRUE(packed) << packed.error().message;
      at += n;
    }
    EXPECT_EQ(apart, *pack(c.lengths, c.options)) << "seed " << seed;
  }
}

// Rows as sorted lengths, themselves sorted.
std::multiset<std::multiset<int32_t>> contents(const Packing& packing) {
  std::multiset<std::multiset<int32_t>> all;
  for (int64_t r = 0; r < packing.rows(); ++r) {
    std::multiset<int32_t> row;
    for (const DocumentPart& p : packing.row(r)) row.insert(p.length);
    all.insert(row);
  }
  return all;
}

TEST(Pack, FirstAndBestFitAreWhatTheirNamesSay) {
  for (uint64_t seed = 1; seed < 500; ++seed) {
    Case c = random_pack(seed);
    c.options.window_rows = 1 << 20;
    c.options.long_documents = LongDocuments::drop;
    if (seed % 2 == 0) {  // few lengths, so that many are equal
      const auto step = static_cast<int32_t>(2 + seed / 2 % 15);
      for (int32_t& l : c.lengths) l = (l + step - 1) / step * step;
    }
    Lengths sorted;
    for (const int32_t l : c.lengths) {
      if (l > 0 && l <= c.options.tokens) sorted.push_back(l);
    }
    std::sort(sorted.rbegin(), sorted.rend());
    std::vector<std::multiset<int32_t>> first;
    std::vector<int64_t> first_room, best_room;
    for (const int32_t l : sorted) {
      size_t r = 0;
      while (r < first.size() && first_room[r] < l) ++r;
      if (r == first.size()) {
        first.emplace_back();
        first_room.push_back(c.options.tokens);
      }
      first[r].insert(l);
      first_room[r] -= l;

      auto best = best_room.end();
      for (auto at = best_room.begin(); at != best_room.end(); ++at) {
        if (*at >= l && (best == best_room.end() || *at < *best)) best = at;
      }
      if (best == best_room.end()) {
        best_room.push_back(c.options.tokens);
        best = best_room.end() - 1;
      }
      *best -= l;
    }
    c.options.strategy = PackStrategy::first_fit;
    c.options.mixing = 0;
    EXPECT_EQ(
        contents(*pack(c.lengths, c.options)),
        (std::multiset<std::multiset<int32_t>>(first.begin(), first.end())))
        << "seed " << seed;
    // Rows of equal room are interchangeable, so only their rooms are compared.
    c.options.strategy = PackStrategy::best_fit;
    const Packing packing = *pack(c.lengths, c.options);
    std::vector<int64_t> rooms;
    for (int64_t r = 0; r < packing.rows(); ++r) {
      int64_t room = c.options.tokens;
      for (const DocumentPart& p : packing.row(r)) room -= p.length;
      rooms.push_back(room);
    }
    std::sort(rooms.begin(), rooms.end());
    std::sort(best_room.begin(), best_room.end());
    EXPECT_EQ(rooms, best_room) << "seed " << seed;
  }
}

// Slow: each part looks at all rows. `sorted` descends. Returns rows' rooms.
std::vector<int64_t> slow_even_fit(const Lengths& sorted, int64_t tokens) {
  const int64_t sum = std::accumulate(sorted.begin(), sorted.end(), int64_t{0});
  struct Row {
    int64_t squares = 0, room = 0;
    bool closed = false;
  };
  std::vector<Row> rows(static_cast<size_t>((sum + tokens - 1) / tokens),
                        Row{0, tokens, false});
  bool is_long = true;
  for (const int32_t l : sorted) {
    Row* to = nullptr;
    // The row with the least cost is dropped for good once it has no room.
    while (is_long && 8 * l >= tokens) {
      to = nullptr;
      for (Row& row : rows) {
        if (!row.closed && (to == nullptr || row.squares < to->squares)) {
          to = &row;
        }
      }
      if (to == nullptr || to->room >= l) break;
      to->closed = true;
    }
    is_long = to != nullptr;
    if (to == nullptr) {
      for (Row& row : rows) {
        if (row.room >= l && (to == nullptr || row.room < to->room)) to = &row;
      }
    }
    if (to == nullptr) to = &rows.emplace_back(Row{0, tokens, false});
    to->squares += int64_t{l} * l;
    to->room -= l;
  }
  std::vector<int64_t> rooms;
  for (const Row& row : rows) rooms.push_back(row.room);
  std::sort(rooms.begin(), rooms.end());
  return rooms;
}

TEST(Pack, RowsThatCostAlikeAreThoseOfASlowFit) {
  int64_t even = 0;
  for (uint64_t seed = 1; seed < 500; ++seed) {
    Case c = random_pack(seed);
    Lengths sorted;
    for (const int32_t l : c.lengths) {
      if (l > 0 && l <= c.options.tokens) sorted.push_back(l);
    }
    std::sort(sorted.rbegin(), sorted.rend());
    const Fit fit = even_fit(sorted, c.options.tokens);
    std::vector<int64_t> rooms(static_cast<size_t>(fit.rows), c.options.tokens);
    std::vector<int> seen(sorted.size());
    ASSERT_EQ(fit.parts, sorted.size());
    for (size_t i = 0; i < fit.parts; ++i) {
      const auto part = static_cast<size_t>(fit.part[i]);
      rooms[static_cast<size_t>(fit.row_of[i])] -= sorted[part];
      ++seen[part];
    }
    std::sort(rooms.begin(), rooms.end());
    EXPECT_EQ(rooms, slow_even_fit(sorted, c.options.tokens)) << seed;
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), std::ssize(seen));
    // By cost there are at most 1 in 1,024 rows more than by best fit.
    c.options.window_rows = 1 << 20;
    c.options.strategy = PackStrategy::best_fit;
    c.options.mixing = 0;
    const int64_t best = pack(c.lengths, c.options)->rows();
    c.options.strategy = PackStrategy::by_cost;
    c.options.mixing = seed % 2 == 0 ? 0 : 0.3;  // reorders rows only
    const Packing by_cost = *pack(c.lengths, c.options);
    EXPECT_LE(by_cost.rows(), best + best / 1024) << seed;
    even += fit.rows <= best ? 1 : 0;
  }
  EXPECT_GT(even, 50);
}

TEST(Pack, InOrderKeepsTheOrder) {
  const Packing packing =
      *pack(Lengths{5, 0, 7, 30, 2},
            {.tokens = 10, .strategy = PackStrategy::in_order});
  const std::vector<DocumentPart> parts = {{0, 0, 5},  {2, 0, 5},  {2, 5, 2},
                                           {3, 0, 8},  {3, 8, 10}, {3, 18, 10},
                                           {3, 28, 2}, {4, 0, 2}};
  EXPECT_EQ(packing.parts, parts);
  EXPECT_EQ(packing.row_start, (std::vector<int64_t>{0, 2, 4, 5, 6, 8}));
}

// The tiles of each row as the planner counts them.
std::vector<int64_t> planned(const Packing& packing, Tile tile) {
  std::vector<int64_t> tiles;
  for (int64_t r = 0; r < packing.rows(); ++r) {
    std::vector<int32_t> ids(static_cast<size_t>(packing.tokens), -1);
    size_t at = 0;
    int32_t id = 0;
    for (const DocumentPart& p : packing.row(r)) {
      for (int32_t i = 0; i < p.length; ++i) ids[at++] = id;
      ++id;
    }
    Request request;
    request.masks = {*parse_mask("causal & documents")};
    request.q_len = request.kv_len = packing.tokens;
    request.tile = tile;
    Facts facts;
    facts.doc_ids = Ints(ids);
    auto batch = BorrowedBatch::make(request, facts);
    tiles.push_back(static_cast<int64_t>(batch->plan().forward.entries.size()));
  }
  return tiles;
}

TEST(PackCost, TheClosedFormIsWhatThePlannerCounts) {
  for (uint64_t seed = 1; seed < 300; ++seed) {
    Case c = random_pack(seed);
    c.options.tile = Tile{8 + static_cast<int64_t>(seed % 9), 0};
    c.options.tile.kv = c.options.tile.q;
    const Packing packing = *pack(c.lengths, c.options);
    const std::vector<int64_t> expected = planned(packing, c.options.tile);
    EXPECT_EQ(*row_costs(packing, c.options), expected) << "seed " << seed;
    // This equal mask is not the usual one, so it goes through the planner.
    c.options.mask = *parse_mask("causal & documents & window(100000, -1)");
    EXPECT_EQ(*row_costs(packing, c.options), expected) << "seed " << seed;
  }
}

TEST(PackCost, StepsCostTheSameAtTheSameFill) {
  const Lengths lengths = lognormal(60000, 1500, 3);
  PackOptions options;
  options.strategy = PackStrategy::best_fit;
  const Packing best = *pack(lengths, options);
  const auto unlike = pack_balance(best, *row_costs(best, options), 8);
  options.strategy = PackStrategy::by_cost;
  const Packing even = *pack(lengths, options);
  const auto like = pack_balance(even, *row_costs(even, options), 8);
  EXPECT_GE(best.account.fill(), 0.999);
  EXPECT_GE(even.account.fill(), best.account.fill());
  EXPECT_GT(unlike.max_over_mean, 1.5);
  EXPECT_LE(like.max_over_mean, 1.02);
  EXPECT_LT(like.length_spread, 0.5);  // best fit in this order has 0.7
  options.mixing = 1;
  const Packing mixed = *pack(lengths, options);
  const auto between = pack_balance(mixed, *row_costs(mixed, options), 8);
  EXPECT_GT(between.max_over_mean, 1.1);
  EXPECT_LT(between.length_spread, like.length_spread);
}

// Sums of an untrusted position may each be up to 2^53.
TEST(PackBalance, SumsOfAStrangerDoNotOverflow) {
  constexpr int64_t kRows = 4096;
  const BalanceSums seen = {
      .rows = kRows - 1, .most = int64_t{1} << 53, .cost = int64_t{1} << 53};
  data::BalanceMeter meter(kRows, seen);
  meter.add({}, 0);
  EXPECT_EQ(meter.balance().worst, kRows);
  EXPECT_EQ(meter.balance().max_over_mean, kRows);
}

TEST(PackErrors, BadOptionsAndLengthsAreNamed) {
  const auto said = [](const Lengths& lengths, const PackOptions& options) {
    const auto packing = pack(lengths, options);
    return packing ? "" : packing.error().message;
  };
  EXPECT_EQ(said({1}, {.tokens = 0}),
            "[pack] the tokens of a row must be 1 to 16777216, found 0 for it");
  EXPECT_EQ(said({1}, {.window_rows = 0}),
            "[pack] the rows of a window must be 1 to 16777216, found 0 for "
            "it");
  EXPECT_EQ(said({1}, {.rows_per_step = -1}),
            "[pack] the rows of a step must be 1 to 65536, found -1 for it");
  EXPECT_EQ(said({1}, {.mixing = 1.5}),
            "[pack] mixing must be 0 to 1, found 1.5 for it");
  EXPECT_NE(said({1}, {.mixing = std::nan("")}), "");
  EXPECT_EQ(said({1}, {.strategy = PackStrategy::in_order, .mixing = 0.5}),
            "[pack] mixing must come with the strategy cost, found 0.5 for "
            "inorder");
  EXPECT_EQ(said({1, 2, -1}, {}),
            "[pack] a length must be 0 or more, found -1 for document 2");
  EXPECT_EQ(said({INT32_MAX}, {.tokens = 1}),
            "[pack] a window must be at most 268435456 parts of documents, "
            "found 2147483648 for 1 tokens a row");
  EXPECT_NE(said({1}, {.strategy = PackStrategy::by_cost, .tile = {0, 0}}), "");
  EXPECT_EQ(said({}, {}), "");
  EXPECT_EQ(parse_pack_strategy("cheapest").error().message,
            "[pack] a strategy must be one of inorder, firstfit, bestfit, "
            "cost, found 'cheapest' for it");
  EXPECT_EQ(to_string(*parse_long_documents("keep_tail")), "keep_tail");
}

}  // namespace
}  // namespace tessera::data
