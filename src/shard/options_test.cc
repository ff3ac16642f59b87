// shard/options_test.cc: options from text, and balance by tile work.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tessera/batch.h"
#include "tessera/shard.h"

namespace tessera {
namespace {

TEST(TileWork, IsTextAndBack) {
  for (const TileWork work : {TileWork{}, TileWork{3, 2}, TileWork{1, 7},
                              TileWork{kMaxTileWork, kMaxTileWork}}) {
    const auto again = parse_tile_work(to_string(work));
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(*again, work);
  }
  EXPECT_EQ(to_string(TileWork{3, 2}), "partial=3,full=2");
  EXPECT_EQ(*parse_tile_work("full=2"), (TileWork{1, 2}));
  EXPECT_EQ(*parse_tile_work(""), TileWork());
  for (const auto& [text, found] :
       {std::pair{"full",
                  "the work of a full tile must be 1 to 1048576, found "
                  "''"},
        {"full=0", "the work of a full tile must be 1 to 1048576, found '0'"},
        {"partial=-1",
         "the work of a partial tile must be 1 to 1048576, found '-1'"},
        {"partial=1.5",
         "the work of a partial tile must be 1 to 1048576, found '1.5'"},
        {"full=1048577",
         "the work of a full tile must be 1 to 1048576, found '1048577'"},
        {"full=99999999999999999999",
         "the work of a full tile must be 1 to 1048576, found "
         "'99999999999999999999'"},
        {"full=1,full=2",
         "the work of a class must stand once, found two for 'full'"},
        {"empty=1", "work must be of partial or full, found 'empty=1'"},
        {"full=1,", "work must be of partial or full, found ''"}}) {
    ShardWords words;
    words.work = text;
    const auto read = parse_shard_options(words);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().message, std::string("[shard] ") + found);
  }
}

TEST(Evenness, IsTextAndBack) {
  for (const Evenness e :
       {Evenness{}, Evenness{1, 1}, Evenness{1.1, kMaxEvenness},
        Evenness{1.0000000000000002, 3.3333333333333335}}) {
    const auto again = parse_evenness(to_string(e));
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(*again, e);
  }
  EXPECT_EQ(to_string(Evenness()), "work=1.05,tokens=1.02");
  EXPECT_EQ(*parse_evenness("tokens=2"), (Evenness{1.05, 2}));
  EXPECT_EQ(*parse_evenness(""), Evenness());
  for (const auto& [text, found] :
       {std::pair{"work", "the evenness of work must be 1 to 1000, found ''"},
        {"work=0.99", "the evenness of work must be 1 to 1000, found '0.99'"},
        {"tokens=1001",
         "the evenness of tokens must be 1 to 1000, found '1001'"},
        {"tokens=nan", "the evenness of tokens must be 1 to 1000, found 'nan'"},
        {"tokens=inf", "the evenness of tokens must be 1 to 1000, found 'inf'"},
        {"work=1.1x", "the evenness of work must be 1 to 1000, found '1.1x'"},
        {"work=1,work=2",
         "the evenness of one thing must stand once, found two for 'work'"},
        {"rows=1", "evenness must be of work or tokens, found 'rows=1'"}}) {
    ShardWords words;
    words.evenness = text;
    const auto read = parse_shard_options(words);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().message, std::string("[shard] ") + found);
  }
  for (const Balance balance : {Balance::contiguous, Balance::headtail,
                                Balance::rows, Balance::tasks}) {
    ShardWords words;
    words.balance = to_string(balance);
    words.evenness = "work=2";
    const auto read = parse_shard_options(words);
    EXPECT_EQ(read.ok(), seeks_evenness(balance)) << words.balance;
    if (!read) {
      EXPECT_EQ(read.error().message,
                "[shard] evenness goes with a balance that seeks it, rows or "
                "tasks, found " +
                    std::string(words.balance));
    }
  }
}

constexpr int64_t kTokens = 8192;
constexpr int64_t kTile = 16;
constexpr int64_t kTiles = kTokens / kTile;

// One long document, whose tiles are mostly full, among short ones.
std::vector<int32_t> drawn_ids(uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> lengths = {kTokens / 16};
  for (int64_t left = kTokens - lengths[0]; left > 0;) {
    lengths.push_back(std::min(left, static_cast<int64_t>(1 + random() % 200)));
    left -= lengths.back();
  }
  std::shuffle(lengths.begin(), lengths.end(), random);
  std::vector<int32_t> ids;
  for (size_t i = 0; i < lengths.size(); ++i) {
    ids.insert(ids.end(), static_cast<size_t>(lengths[i]),
               static_cast<int32_t>(i));
  }
  return ids;
}

// For each tile row of `causal & documents`, counted pair by pair: its partial
// tiles and its full tiles.
using Tiles = std::vector<std::pair<int64_t, int64_t>>;
Tiles tiles_of_rows(const std::vector<int32_t>& ids) {
  Tiles out(kTiles, {0, 0});
  for (int64_t r = 0; r < kTiles; ++r) {
    for (int64_t c = 0; c <= r; ++c) {
      int64_t legal = 0;
      for (int64_t i = r * kTile; i < (r + 1) * kTile; ++i) {
        for (int64_t j = c * kTile; j < (c + 1) * kTile; ++j) {
          legal += j <= i &&
                   ids[static_cast<size_t>(i)] == ids[static_cast<size_t>(j)];
        }
      }
      auto& [partial, full] = out[static_cast<size_t>(r)];
      if (legal > 0) ++(legal == kTile * kTile ? full : partial);
    }
  }
  return out;
}

double max_over_mean(const std::vector<int64_t>& work) {
  int64_t sum = 0;
  for (const int64_t w : work) sum += w;
  return static_cast<double>(*std::ranges::max_element(work)) *
         static_cast<double>(work.size()) / static_cast<double>(sum);
}

std::vector<int64_t> work_of_shards(const Shards& shards, const Tiles& rows,
                                    const TileWork& work) {
  std::vector<int64_t> out;
  for (const Shard& s : shards.shards) {
    out.push_back(0);
    for (size_t i = 0; i < s.rows.size(); ++i) {
      if (!s.computes[i]) continue;
      const auto& [partial, full] = rows[static_cast<size_t>(s.rows[i].tile)];
      out.back() += partial * work.partial + full * work.full;
    }
  }
  return out;
}

TEST(TileWork, ShardsAreEvenInWhatTheirTilesCount) {
  Request request;
  request.masks = {*parse_mask("causal & documents")};
  request.q_len = request.kv_len = kTokens;
  request.tile = {kTile, kTile};
  const Mesh mesh = *parse_mesh("seq=8");
  ShardOptions options;
  options.shape = {4, 2, 8, 8, {}, 0};
  const double limit = options.evenness.work;
  int64_t otherwise = 0;  // cases that are uneven if balanced by steps alone
  for (uint64_t seed = 0; seed < 3; ++seed) {
    OwnedFacts facts;
    facts.doc_ids = drawn_ids(seed);
    auto batch = OwnedBatch::make(request, facts);
    ASSERT_TRUE(batch) << batch.error().message;
    const Tiles rows = tiles_of_rows(*facts.doc_ids);
    for (const Balance balance : {Balance::rows, Balance::tasks}) {
      options.balance = balance;
      options.work = {};
      const auto plain = make_shards(*batch, mesh, options);
      ASSERT_TRUE(plain) << plain.error().message;
      // With the last two works, even tokens can rule out even work.
      for (const TileWork work :
           {TileWork{1, 1}, TileWork{3, 2}, TileWork{2, 3}, TileWork{1, 9},
            TileWork{9, 1}, TileWork{kMaxTileWork, 1}}) {
        options.work = work;
        const auto shards = make_shards(*batch, mesh, options);
        ASSERT_TRUE(shards) << shards.error().message;
        const std::vector<int64_t> found = work_of_shards(*shards, rows, work);
        for (size_t s = 0; s < found.size(); ++s) {
          EXPECT_EQ(shards->shards[s].work, found[s]);
        }
        const double most = max_over_mean(found);
        EXPECT_EQ(shards->report.work_max_over_mean, most);
        const double by_steps =
            max_over_mean(work_of_shards(*plain, rows, work));
        EXPECT_LE(most, work.partial <= 3 ? limit : std::max(by_steps, limit))
            << to_string(balance) << " " << to_string(work) << " " << seed;
        if (work.partial <= 3) otherwise += by_steps > limit;
      }
    }
  }
  EXPECT_GT(otherwise, 0);
}

}  // namespace
}  // namespace tessera
