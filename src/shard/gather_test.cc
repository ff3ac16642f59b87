// shard/gather_test.cc: the gather of all K and V, and when it is chosen.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "tessera/shard.h"

namespace tessera {
namespace {

// A batch with tiles of 16 tokens; with a seed, documents of random lengths.
Result<OwnedBatch> batch_of(int64_t tokens, std::optional<uint64_t> seed) {
  Request request;
  request.masks = {*parse_mask(seed ? "causal & documents" : "causal")};
  request.q_len = request.kv_len = tokens;
  request.tile = {16, 16};
  OwnedFacts facts;
  if (seed) {
    std::mt19937_64 random(*seed);
    std::vector<int32_t> ids;
    for (int32_t id = 0; static_cast<int64_t>(ids.size()) < tokens; ++id) {
      ids.insert(ids.end(), 1 + random() % 400, id);
    }
    ids.resize(static_cast<size_t>(tokens));
    facts.doc_ids = ids;
  }
  return OwnedBatch::make(std::move(request), std::move(facts));
}

ShardOptions options_of(Balance balance, TileExchange exchange) {
  ShardOptions out;
  out.balance = balance;
  out.exchange = exchange;
  out.shape.heads = 4;
  out.shape.kv_heads = 2;
  out.shape.head_dim = out.shape.v_head_dim = 8;
  return out;
}

Result<Shards> spread(const Batch& batch, const ShardOptions& options) {
  return make_shards(batch, *parse_mesh("seq=4"), options);
}

constexpr Balance kBalances[] = {Balance::contiguous, Balance::headtail,
                                 Balance::rows, Balance::tasks};

// By hand: 8 rows of one causal document on two shards.
TEST(Gather, PlacesAndCountsAsByHand) {
  auto batch = batch_of(128, {});
  ASSERT_TRUE(batch) << batch.error().message;
  auto shards =
      make_shards(*batch, *parse_mesh("seq=2"),
                  options_of(Balance::contiguous, TileExchange::gather));
  ASSERT_TRUE(shards) << shards.error().message;
  EXPECT_EQ(shards->exchange, TileExchange::gather);
  EXPECT_EQ(shards->kv.rounds, (std::vector<Round>{{1, 4}}));
  // Its own columns, those of shard 0, and room for a copy of its own.
  EXPECT_EQ(shards->shapes.columns, 12);
  std::vector<TileAt> due(12);
  for (int32_t t = 0; t < 4; ++t) {
    due[static_cast<size_t>(t)] = {0, 4 + t};
    due[static_cast<size_t>(4 + t)] = {0, t};
  }
  EXPECT_EQ(shards->shards[1].columns, due);
  // Shard 0 needs none of the columns it receives.
  const std::vector<TileAt>& first = shards->shards[0].columns;
  EXPECT_EQ(std::count(first.begin(), first.end(), TileAt()), 8);
  EXPECT_EQ(shards->kv.send[0][0], (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_TRUE(shards->kv.send[1][0].empty());
  const int64_t tile = 2 * 16 * (8 + 8) * 2;  // KV heads, tokens, dims, bytes
  EXPECT_EQ(shards->report.forward,
            (Moved{4 * tile, 8 * tile, 8 * tile, 4 * tile, 8 * tile}));
  EXPECT_EQ(shards->report.backward,
            (Moved{12 * tile, 24 * tile, 24 * tile, 12 * tile, 24 * tile}));
}

// The automatic choice equals one of the others, and sends no more.
TEST(Gather, IsChosenWhereRoundsWouldSendAsMuch) {
  int64_t gathered = 0, in_rounds = 0;
  for (uint64_t i = 0; i < 20; ++i) {
    auto batch = i < 4 ? batch_of(1024 + 64 * static_cast<int64_t>(i), {})
                       : batch_of(2048, i);
    ASSERT_TRUE(batch) << batch.error().message;
    for (const Balance balance : kBalances) {
      auto chosen =
          spread(*batch, options_of(balance, TileExchange::automatic));
      auto rounds = spread(*batch, options_of(balance, TileExchange::rounds));
      auto gather = spread(*batch, options_of(balance, TileExchange::gather));
      ASSERT_TRUE(chosen && rounds && gather);
      EXPECT_NE(rounds->contract_key, gather->contract_key);
      const bool is_gather =
          gather->report.forward.sent <= rounds->report.forward.sent;
      ++(is_gather ? gathered : in_rounds);
      const Shards& due = is_gather ? *gather : *rounds;
      EXPECT_EQ(chosen->exchange, due.exchange) << to_string(balance);
      EXPECT_EQ(chosen->contract_key, due.contract_key);
      EXPECT_EQ(chosen->report.forward, due.report.forward);
      EXPECT_EQ(chosen->report.backward, due.report.backward);
      // The needed bytes depend on neither.
      EXPECT_EQ(gather->report.forward.needed, rounds->report.forward.needed);
      EXPECT_EQ(gather->report.forward.busiest, rounds->report.forward.busiest);
    }
  }
  EXPECT_GT(gathered, 10);
  EXPECT_GT(in_rounds, 10);
}

// Ceilings decide, not the batch: each case is one program.
TEST(Gather, IsChosenByTheContract) {
  for (const auto& [ceilings, due] :
       {std::pair{"rows=24,steps=4096,kv=24:24:24", TileExchange::gather},
        {"rows=24,steps=4096,kv=30:18:24", TileExchange::gather},
        {"rows=24,steps=4096,kv=24:24:23", TileExchange::rounds}}) {
    std::string key;
    for (uint64_t seed = 0; seed < 30; ++seed) {
      auto batch = batch_of(1024, seed);
      ASSERT_TRUE(batch) << batch.error().message;
      ShardOptions o = options_of(Balance::rows, TileExchange::automatic);
      o.ceilings = *parse_shard_ceilings(ceilings);
      auto shards = spread(*batch, o);
      ASSERT_TRUE(shards) << shards.error().message;
      EXPECT_EQ(shards->exchange, due) << ceilings;
      if (seed == 0) key = shards->contract_key;
      EXPECT_EQ(shards->contract_key, key) << seed;
      // Its own ceilings give the same contract, also if the exchange is named.
      o.ceilings = ceilings_of(*shards);
      EXPECT_EQ(spread(*batch, o)->contract_key, key);
      o.exchange = due;
      EXPECT_EQ(spread(*batch, o)->contract_key, key);
    }
  }
}

// The automatic choice for TPUs equals a ragged exchange exactly, and sends no
// more than the others.
TEST(Gather, AnOpenExchangeIsRaggedForTpus) {
  for (uint64_t i = 0; i < 20; ++i) {
    auto batch = i < 4 ? batch_of(1024 + 64 * static_cast<int64_t>(i), {})
                       : batch_of(2048, i);
    ASSERT_TRUE(batch) << batch.error().message;
    for (const Balance balance : kBalances) {
      ShardOptions o = options_of(balance, TileExchange::automatic);
      o.for_tpu = true;
      auto chosen = spread(*batch, o);
      auto ragged = spread(*batch, options_of(balance, TileExchange::ragged));
      ASSERT_TRUE(chosen && ragged);
      EXPECT_EQ(chosen->exchange, TileExchange::ragged);
      EXPECT_EQ(chosen->contract_key, ragged->contract_key);
      EXPECT_EQ(chosen->report.forward, ragged->report.forward);
      EXPECT_EQ(chosen->report.backward, ragged->report.backward);
      for (const TileExchange named :
           {TileExchange::rounds, TileExchange::gather}) {
        o.exchange = named;
        auto other = spread(*batch, o);
        ASSERT_TRUE(other) << other.error().message;
        EXPECT_EQ(other->exchange, named);
        EXPECT_LE(chosen->report.forward.sent, other->report.forward.sent);
        EXPECT_LE(chosen->report.backward.sent, other->report.backward.sent);
      }
    }
  }
}

TEST(Gather, OfOneShardIsNone) {
  auto batch = batch_of(256, {});
  ASSERT_TRUE(batch) << batch.error().message;
  const Mesh mesh = *parse_mesh("data=1");
  auto asked = make_shards(*batch, mesh,
                           options_of(Balance::rows, TileExchange::gather));
  ASSERT_TRUE(asked) << asked.error().message;
  EXPECT_TRUE(asked->kv.rounds.empty());
  EXPECT_EQ(asked->shapes.columns, asked->shapes.own_columns);
  EXPECT_EQ(asked->report.forward.sent, 0);
  for (const bool for_tpu : {false, true}) {
    ShardOptions o = options_of(Balance::rows, TileExchange::automatic);
    o.for_tpu = for_tpu;
    auto chosen = make_shards(*batch, mesh, o);
    ASSERT_TRUE(chosen) << chosen.error().message;
    EXPECT_EQ(chosen->exchange, TileExchange::rounds);
  }
}

// With fixed ceilings one exchange serves all batches.
TEST(Gather, CeilingsForTpusAreOneContract) {
  std::string key;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    auto batch = batch_of(1024, seed);
    ASSERT_TRUE(batch) << batch.error().message;
    ShardOptions o = options_of(Balance::rows, TileExchange::automatic);
    o.for_tpu = true;
    o.ceilings = *parse_shard_ceilings("rows=24,steps=4096,kv=24:24:24");
    auto shards = spread(*batch, o);
    ASSERT_TRUE(shards) << shards.error().message;
    EXPECT_EQ(shards->exchange, TileExchange::ragged);
    if (seed == 0) key = shards->contract_key;
    EXPECT_EQ(shards->contract_key, key) << seed;
    o.ceilings = ceilings_of(*shards);
    EXPECT_EQ(spread(*batch, o)->contract_key, key);
  }
}

TEST(Gather, WordsAreReadAndWritten) {
  for (const char* word : {"rounds", "ragged", "gather", "auto"}) {
    const auto read = parse_tile_exchange(word);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(to_string(*read), word);
  }
  auto batch = batch_of(256, {});
  ShardOptions o = options_of(Balance::rows, static_cast<TileExchange>(4));
  EXPECT_EQ(spread(*batch, o).error().message,
            "[shard] exchange must be one of four, found number 4");
}

}  // namespace
}  // namespace tessera
