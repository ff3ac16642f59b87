// shard/shard_test.cc: meshes, specs, refusals and the contract.
#include "tessera/shard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "shard/row_shards.h"
#include "tests/sharded_run.h"

namespace tessera {
namespace {

std::string error_of(const auto& result) {
  return result ? "no error" : result.error().message;
}

Mesh mesh_of(std::string_view text) { return *parse_mesh(text); }

TEST(Mesh, IsReadAndWritten) {
  const Mesh mesh = mesh_of("data=2,head=3,seq=4");
  EXPECT_EQ(mesh.devices(), 24);
  EXPECT_EQ(mesh.size("head"), 3);
  EXPECT_EQ(mesh.size("copy"), 1);
  EXPECT_EQ(to_string(mesh), "data=2,head=3,seq=4");
  EXPECT_EQ(mesh_of(to_string(mesh)), mesh);
}

TEST(Mesh, AxesMayHaveNamesOfTheirOwn) {
  const Mesh mesh = mesh_of("dp:data=2,seq:seq=4,_x1:copy=3");
  EXPECT_EQ(mesh.devices(), 24);
  EXPECT_EQ(mesh.axes[0], (MeshAxis{"dp", 2, "data"}));
  EXPECT_EQ(mesh.axes[1], (MeshAxis{"seq", 4}));
  EXPECT_EQ(mesh.size("data"), 2);
  EXPECT_EQ(mesh.size("dp"), 1);  // no role
  EXPECT_TRUE(mesh.has("copy"));
  EXPECT_EQ(mesh.name_of("copy"), "_x1");
  EXPECT_EQ(mesh.name_of("seq"), "seq");
  EXPECT_EQ(mesh.name_of("head"), "");
  EXPECT_EQ(to_string(mesh), "dp:data=2,seq=4,_x1:copy=3");
  EXPECT_EQ(mesh_of(to_string(mesh)), mesh);
}

TEST(Mesh, RefusesBadText) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "[mesh] an axis must read name=size, found ''"},
      {"seq", "[mesh] an axis must read name=size, found 'seq'"},
      {"=4", "[mesh] an axis must read name=size, found '=4'"},
      {"seq=4,", "[mesh] an axis must read name=size, found ''"},
      {"s q=4",
       "[mesh] an axis must be one of data, head, seq, copy, found 's q'"},
      {"foo=2",
       "[mesh] an axis must be one of data, head, seq, copy, found 'foo'"},
      {"seq=4,Data=1",
       "[mesh] an axis must be one of data, head, seq, copy, found 'Data'"},
      {"seq=", "[mesh] an axis must have 1 to 4096 devices, found 'seq='"},
      {"seq=0", "[mesh] an axis must have 1 to 4096 devices, found 'seq=0'"},
      {"seq=+4", "[mesh] an axis must have 1 to 4096 devices, found 'seq=+4'"},
      {"seq=99999999999999999999",
       "[mesh] an axis must have 1 to 4096 devices, found "
       "'seq=99999999999999999999'"},
      {"seq=4,seq=2", "[mesh] an axis must stand once, found two for 'seq'"},
      {"a:seq=4,b:seq=2",
       "[mesh] an axis must stand once, found two for 'seq'"},
      {"a:seq=4,a:data=2", "[mesh] an axis must stand once, found two for 'a'"},
      {"a:row=4",
       "[mesh] an axis must be one of data, head, seq, copy, found 'row'"},
      {"data:seq=4",
       "[mesh] an axis's own name must be of 1 to 64 letters, digits and _ and "
       "no role, found 'data:seq=4'"},
      {":seq=4",
       "[mesh] an axis's own name must be of 1 to 64 letters, digits and _ and "
       "no role, found ':seq=4'"},
      {"2d:seq=4",
       "[mesh] an axis's own name must be of 1 to 64 letters, digits and _ and "
       "no role, found '2d:seq=4'"},
      {"seq=4096,data=2",
       "[mesh] a mesh may have 4096 devices, found more for 'seq=4096,data=2'"},
  };
  for (const auto& [text, message] : cases) {
    EXPECT_EQ(error_of(parse_mesh(text)), message) << text;
  }
}

// Any bytes give a mesh that prints as read, or an error of one line.
TEST(Mesh, TakesAnyBytes) {
  std::mt19937_64 random(1);
  constexpr std::string_view kLikely = "seq=,data: head0123456789\n\xff_";
  for (int i = 0; i < 200000; ++i) {
    std::string text = random() % 2 ? "seq=4,data=2" : "";
    for (uint64_t k = random() % 12; k > 0; --k) {
      const char c = kLikely[random() % kLikely.size()];
      if (text.empty() || random() % 2) {
        text.insert(random() % (text.size() + 1), 1, c);
      } else {
        text[random() % text.size()] = c;
      }
    }
    const auto mesh = parse_mesh(text);
    if (mesh) {
      EXPECT_EQ(*parse_mesh(to_string(*mesh)), *mesh) << text;
      EXPECT_LE(mesh->devices(), kMaxMeshDevices);
    } else {
      EXPECT_TRUE(mesh.error().message.starts_with("[mesh] "));
      EXPECT_EQ(mesh.error().message.find('\n'), std::string::npos);
    }
  }
}

TEST(Specs, AreChecked) {
  const Mesh mesh = mesh_of("data=2,seq=4");
  const ArraySpec good{"q", Dtype::bf16, {2, 8, 16}, {"data", "", "seq"}};
  EXPECT_TRUE(check_specs(mesh, {good}));
  auto spec = good;
  spec.axes.pop_back();
  EXPECT_EQ(error_of(check_specs(mesh, {spec})),
            "[shard] an array must have a spec for each dimension, found 2 for "
            "the 3 of 'q'");
  spec = good;
  spec.axes[1] = "head";
  EXPECT_EQ(error_of(check_specs(mesh, {spec})),
            "[shard] an axis must be of the mesh data=2,seq=4, found 'head' "
            "for 'q'");
  spec = good;
  spec.axes[1] = "seq";
  EXPECT_EQ(error_of(check_specs(mesh, {spec})),
            "[shard] an axis must split one dimension of an array, found "
            "'seq' twice for 'q'");
  spec = good;
  spec.shape[2] = 18;
  EXPECT_EQ(error_of(check_specs(mesh, {spec})),
            "[shard] an axis must divide what it splits, found seq=4 for "
            "dimension 2 of 'q', which is 18");
  EXPECT_EQ(error_of(check_specs(mesh, {good, good})),
            "[shard] an array must have a name of its own, found 'q' again");
}

TEST(Specs, FingerprintTellsAllApart) {
  const Mesh mesh = mesh_of("data=2,seq=4");
  const ArraySpec q{"q", Dtype::bf16, {2, 8, 16}, {"data", "", "seq"}};
  const std::string first = spec_fingerprint(mesh, {q});
  EXPECT_EQ(first, "68668c5a61da1a3d9240b7569202725e");
  EXPECT_NE(spec_fingerprint(mesh_of("data=2,seq=8"), {q}), first);
  for (int what = 0; what < 4; ++what) {
    ArraySpec other = q;
    if (what == 0) other.name = "k";
    if (what == 1) other.dtype = Dtype::f32;
    if (what == 2) other.shape[1] = 4;
    if (what == 3) other.axes = {"seq", "", "data"};
    EXPECT_NE(spec_fingerprint(mesh, {other}), first) << what;
  }
}

Request request_of(std::string_view mask, int64_t tokens, int64_t batch = 1) {
  Request r;
  r.masks = {*parse_mask(mask)};
  r.batch = batch;
  r.q_len = r.kv_len = tokens;
  r.tile = {16, 16};
  return r;
}

ShardOptions options_of(Balance balance) {
  ShardOptions o;
  o.balance = balance;
  o.shape.heads = 4;
  o.shape.kv_heads = 2;
  o.shape.head_dim = o.shape.v_head_dim = 8;
  return o;
}

std::vector<int32_t> drawn_ids(uint64_t seed, int64_t tokens) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> ids;
  for (int32_t id = 0; static_cast<int64_t>(ids.size()) < tokens; ++id) {
    ids.insert(ids.end(), 1 + random() % 200, id);
  }
  ids.resize(static_cast<size_t>(tokens));
  return ids;
}

TEST(Shards, RefusesWhatDoesNotFit) {
  auto batch = OwnedBatch::make(request_of("causal", 256, 3), {});
  ASSERT_TRUE(batch);
  const auto refuse = [&](std::string_view mesh, auto change) {
    ShardOptions o = options_of(Balance::rows);
    change(o);
    return error_of(make_shards(*batch, mesh_of(mesh), o));
  };
  const auto nothing = [](ShardOptions&) {};
  EXPECT_EQ(refuse("data=2,seq=2", nothing),
            "[shard] an axis must divide what it splits, found data=2 for 3 "
            "batch rows (uneven pads them)");
  EXPECT_EQ(refuse("head=4", nothing),
            "[shard] an axis must divide what it splits, found head=4 for 2 KV "
            "heads (uneven pads them)");
  EXPECT_EQ(refuse("seq=2", [](ShardOptions& o) { o.shape.kv_heads = 3; }),
            "[shard] kv_heads must divide heads, found 3 for 4");
  EXPECT_EQ(refuse("seq=2", [](ShardOptions& o) { o.shape.head_dim = 0; }),
            "[shard] head_dim must be between 1 and 65536, found 0");
  EXPECT_EQ(refuse("seq=2", [](ShardOptions& o) { o.work.full = 0; }),
            "[shard] work.full must be between 1 and 1048576, found 0");
  EXPECT_EQ(refuse("seq=2",
                   [](ShardOptions& o) { o.evenness.tokens = std::nan(""); }),
            "[shard] evenness.tokens must be between 1 and 1000, found "
            "nan");
  EXPECT_EQ(refuse("seq=2", [](ShardOptions& o) { o.dtype = Dtype::i32; }),
            "[shard] dtype must be f32, bf16 or f16, found i32");
  EXPECT_EQ(refuse("seq=4",
                   [](ShardOptions& o) {
                     o.ceilings.q_rounds = {1, 1, 1};
                   }),
            "[shard] ceilings of q go with balance tasks, found rows");
  EXPECT_EQ(
      refuse("seq=4", [](ShardOptions& o) { o.ceilings.steps = kMaxTiles; }),
      "[shard] all shards may have 268435456 steps, found 1073741824");
  EXPECT_EQ(refuse("seq=4", [](ShardOptions& o) { o.ceilings.rows = 97; }),
            "[shard] the ceiling of rows must be at most 96, twice all query "
            "tiles, found 97");
  EXPECT_EQ(refuse("seq=4", [](ShardOptions& o) { o.ceilings.steps = 3; }),
            "[shard] a shard may have 3 steps, found 106");
  EXPECT_EQ(refuse("seq=4",
                   [](ShardOptions& o) {
                     o.ceilings.kv_rounds = {1, 1};
                   }),
            "[shard] kv must have a ceiling for each of 3 shifts, found 2");
  EXPECT_TRUE(refuse("seq=4", [](ShardOptions& o) {
                o.ceilings.kv_rounds = {0, 0, 0};
              }).starts_with("[shard] a round of kv by shift 1 may send 0"));
  Mesh twice{{{"seq", 2}, {"seq", 2}}};
  EXPECT_EQ(error_of(make_shards(*batch, twice, options_of(Balance::rows))),
            "[mesh] an axis must stand once, found two for 'seq'");
  auto other = OwnedBatch::make(request_of("causal", 256, 3), {});
  EXPECT_EQ(error_of(parse_balance("even")),
            "[shard] balance must be contiguous, headtail, rows or tasks, "
            "found 'even'");
  EXPECT_EQ(error_of(parse_tile_exchange("ring")),
            "[shard] exchange must be rounds, ragged, gather or auto, found "
            "'ring'");
}

// Under ceilings, different batches have one contract.
TEST(Shards, OneContractServesManyBatches) {
  for (const Balance balance : {Balance::contiguous, Balance::headtail,
                                Balance::rows, Balance::tasks}) {
    ShardOptions o = options_of(balance);
    o.ceilings.steps = 4096;
    o.ceilings.rows = 24;
    o.ceilings.kv_rounds = {24, 24, 24};
    if (balance == Balance::tasks) o.ceilings.q_rounds = {24, 24, 24};
    std::string key;
    for (uint64_t seed = 0; seed < 100; ++seed) {
      OwnedFacts facts;
      facts.doc_ids = drawn_ids(seed, 1024);
      auto batch =
          OwnedBatch::make(request_of("causal & documents", 1024), facts);
      ASSERT_TRUE(batch);
      auto shards = make_shards(*batch, mesh_of("seq=4"), o);
      ASSERT_TRUE(shards) << shards.error().message;
      if (seed == 0) key = shards->contract_key;
      EXPECT_EQ(shards->contract_key, key) << seed;
    }
    auto batch = OwnedBatch::make(request_of("causal", 1024), {});
    auto other = make_shards(*batch, mesh_of("seq=4"), o);
    ASSERT_TRUE(other);
    EXPECT_NE(other->contract_key, key);
    auto mesh = make_shards(*batch, mesh_of("seq=4,copy=2"), o);
    ASSERT_TRUE(mesh);
    EXPECT_NE(mesh->contract_key, other->contract_key);
    EXPECT_EQ(mesh->shards.size(), 4U);  // devices along copy hold the same
  }
}

// The ceilings of one batch, as text, give its contract again, and the contract
// of another batch that fits.
TEST(Shards, CeilingsAreTextAndBack) {
  for (const Balance balance : {Balance::rows, Balance::tasks}) {
    const ShardOptions o = options_of(balance);
    OwnedFacts facts;
    facts.doc_ids = drawn_ids(3, 1024);
    auto batch =
        OwnedBatch::make(request_of("causal & documents", 1024), facts);
    auto shards = make_shards(*batch, mesh_of("seq=4"), o);
    ASSERT_TRUE(shards) << shards.error().message;
    const std::string text = to_string(ceilings_of(*shards));
    ShardWords words;
    words.balance = to_string(balance);
    words.ceilings = text;
    auto again = parse_shard_options(words);
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(to_string(again->ceilings), text);
    EXPECT_EQ(text.find(",q=") != text.npos, balance == Balance::tasks);
    again->shape = o.shape;
    again->dtype = o.dtype;
    auto same = make_shards(*batch, mesh_of("seq=4"), *again);
    ASSERT_TRUE(same) << same.error().message;
    EXPECT_EQ(same->contract_key, shards->contract_key) << text;
    std::vector<int32_t> short_ones(1024);
    for (size_t i = 0; i < 1024; ++i) {
      short_ones[i] = static_cast<int32_t>(i / 64);
    }
    facts.doc_ids = short_ones;
    auto light =
        OwnedBatch::make(request_of("causal & documents", 1024), facts);
    auto fits = make_shards(*light, mesh_of("seq=4"), *again);
    ASSERT_TRUE(fits) << fits.error().message;
    EXPECT_EQ(fits->contract_key, shards->contract_key);
    EXPECT_NE(make_shards(*light, mesh_of("seq=4"), o)->contract_key,
              shards->contract_key);
  }
  // The same if keys are not owned with the queries of the same number.
  Request apart = request_of("causal", 1024);
  apart.kv_len = 576;
  OwnedFacts begins;
  begins.q_offsets = std::vector<int32_t>{0};
  auto longer = OwnedBatch::make(apart, begins);
  ASSERT_TRUE(longer) << longer.error().message;
  ShardOptions under = options_of(Balance::rows);
  const auto open = make_shards(*longer, mesh_of("seq=4"), under);
  ASSERT_TRUE(open) << open.error().message;
  under.ceilings = ceilings_of(*open);
  const auto held = make_shards(*longer, mesh_of("seq=4"), under);
  ASSERT_TRUE(held) << held.error().message;
  EXPECT_EQ(held->shapes, open->shapes);
  EXPECT_EQ(held->contract_key, open->contract_key);
  // The ceilings of a batch that sends no q are 0 for q, so no other batch
  // under them may send q.
  ShardOptions still = options_of(Balance::tasks);
  auto even = OwnedBatch::make(request_of("window(0, 0)", 1024), {});
  auto sends_none = make_shards(*even, mesh_of("seq=4"), still);
  ASSERT_TRUE(sends_none) << sends_none.error().message;
  EXPECT_EQ(to_string(ceilings_of(*sends_none)),
            "rows=16,steps=16,kv=0:0:0,q=0:0:0");
  auto alone = OwnedBatch::make(request_of("causal", 256), {});
  EXPECT_EQ(to_string(ceilings_of(*make_shards(*alone, mesh_of("data=1"),
                                               options_of(Balance::rows)))),
            "rows=16,steps=192");  // 136 steps, and their bucket
  for (const auto& [text, found] :
       {std::pair{"rows",
                  "the ceiling of rows must be 1 to 268435456, found ''"},
        {"rows=0", "the ceiling of rows must be 1 to 268435456, found '0'"},
        {"steps=1x", "the ceiling of steps must be 1 to 268435456, found '1x'"},
        {"kv=1::2", "the ceiling of kv must be 0 to 268435456, found ''"},
        {"q=1,q=2", "a ceiling must stand once, found two for 'q'"},
        {"tiles=3",
         "a ceiling must be of rows, steps, kv or q, found 'tiles=3'"},
        {"rows=1,", "a ceiling must be of rows, steps, kv or q, found ''"}}) {
    EXPECT_EQ(error_of(parse_shard_ceilings(text)),
              std::string("[shard] ") + found)
        << text;
  }
}

// One document over so many shards that its traffic outweighs all other costs.
TEST(Shards, ManyHaveOneDocument) {
  auto batch = OwnedBatch::make(request_of("causal", 512 * 16), {});
  ASSERT_TRUE(batch);
  auto shards =
      make_shards(*batch, mesh_of("seq=128"), options_of(Balance::rows));
  ASSERT_TRUE(shards) << shards.error().message;
  int64_t rows = 0, steps = 0;
  for (const Shard& s : shards->shards) {
    rows += s.own_rows;
    steps += s.steps;
  }
  EXPECT_EQ(rows, 512);
  EXPECT_EQ(steps, 512 * 513 / 2);
}

// Includes fewer rows than shards, and a few rows per shard.
TEST(Shards, RowsAreEvenOverManyShards) {
  for (const auto& [tiles, devices, documents] : {std::tuple{64, 96, 0},
                                                  {64, 100, 0},
                                                  {256, 256, 0},
                                                  {512, 128, 0},
                                                  {640, 160, 0},
                                                  {1024, 256, 0},
                                                  {512, 512, 0},
                                                  {512, 128, 16},
                                                  {768, 192, 40},
                                                  {1000, 192, 3},
                                                  {37, 5, 2}}) {
    const int64_t length = int64_t{16} * tiles;
    OwnedFacts facts;
    if (documents > 0) facts.doc_ids = drawn_ids(tiles, length);
    auto batch = OwnedBatch::make(
        request_of(documents > 0 ? "causal & documents" : "causal", length),
        facts);
    ASSERT_TRUE(batch) << batch.error().message;
    const Mesh mesh = mesh_of("seq=" + std::to_string(devices));
    const auto rows = make_shards(*batch, mesh, options_of(Balance::rows));
    ASSERT_TRUE(rows) << rows.error().message;
    const auto headtail =
        make_shards(*batch, mesh, options_of(Balance::headtail));
    ASSERT_TRUE(headtail) << headtail.error().message;
    const double mean = static_cast<double>(tiles) / devices;
    const double most = std::max(std::floor(1.02 * mean), std::ceil(mean));
    for (const Shard& s : rows->shards) {
      EXPECT_LE(static_cast<double>(s.own_rows), most)
          << tiles << " over " << devices;
    }
    EXPECT_LE(rows->report.work_max_over_mean,
              std::max(1.05, headtail->report.work_max_over_mean))
        << tiles << " over " << devices;
  }
}

TEST(Shards, EvenWaysReachTheLimitsThatTheyCan) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    OwnedFacts facts;
    facts.doc_ids = drawn_ids(seed, 8192);
    auto batch =
        OwnedBatch::make(request_of("causal & documents", 8192), facts);
    ASSERT_TRUE(batch);
    for (const Balance balance : {Balance::rows, Balance::tasks}) {
      auto shards = make_shards(*batch, mesh_of("seq=8"), options_of(balance));
      ASSERT_TRUE(shards);
      const ShardReport& r = shards->report;
      EXPECT_LE(r.work_max_over_mean, 1.05) << seed;
      EXPECT_LE(r.least_needed, r.forward.needed) << seed;
      EXPECT_LE(r.tokens_max_over_mean, 1.02) << seed;
      EXPECT_GE(r.forward.sent, r.forward.needed);
      EXPECT_GE(r.forward.needed, r.forward.busiest);
    }
  }
}

// One document: all rows need the first keys, under any assignment.
TEST(Shards, NoWayNeedsLessThanTheBound) {
  auto batch = OwnedBatch::make(request_of("causal", 8192), {});
  ASSERT_TRUE(batch);
  for (const TileExchange exchange :
       {TileExchange::rounds, TileExchange::ragged}) {
    for (const Balance balance : {Balance::rows, Balance::tasks}) {
      ShardOptions options = options_of(balance);
      options.exchange = exchange;
      const auto shards = make_shards(*batch, mesh_of("seq=8"), options);
      ASSERT_TRUE(shards);
      const ShardReport& r = shards->report;
      EXPECT_LE(r.work_max_over_mean, 1.05);
      EXPECT_LE(r.least_needed, r.forward.needed);
      EXPECT_GT(r.least_needed, r.forward.all_gather / 4);
    }
  }
}

// Two masks of the same rows, planned separately and as one batch.
TEST(RowShards, OfSeveralMasksAreThoseOfOneBatch) {
  OwnedFacts facts;
  facts.doc_ids = drawn_ids(3, 8192);
  const Request masks[] = {request_of("window(0, 0)", 8192),
                           request_of("causal & documents", 8192)};
  for (const Tile tile : {Tile{16, 16}, Tile{16, 32}}) {
    Request both = masks[0];
    both.masks.push_back(masks[1].masks.front());
    both.tile = tile;
    std::vector<OwnedBatch> apart;
    for (Request each : masks) {
      each.tile = tile;
      apart.push_back(*OwnedBatch::make(each, facts));
    }
    const auto together = OwnedBatch::make(both, facts);
    ASSERT_TRUE(together);
    const Batch* const one = &*together;
    const Batch* const two[] = {&apart[0], &apart[1]};
    const Mesh mesh = mesh_of("seq=8");
    const ShardOptions options = options_of(Balance::rows);
    const auto row_shards = shard::assign_rows(two, mesh, options);
    EXPECT_EQ(row_shards, shard::assign_rows({&one, 1}, mesh, options));
    EXPECT_NE(row_shards, shard::assign_rows({two, 1}, mesh, options));
  }
}

// Includes numbers of own tiles that are not a bucket.
TEST(Shards, NoBatchSendsMoreThanAnAllGatherOfItsParts) {
  for (const int64_t tiles : {8, 17, 65, 72, 130, 144}) {
    auto batch = OwnedBatch::make(request_of("causal", 16 * tiles), {});
    ASSERT_TRUE(batch);
    for (const Balance balance : {Balance::contiguous, Balance::headtail,
                                  Balance::rows, Balance::tasks}) {
      auto shards = make_shards(*batch, mesh_of("seq=4"), options_of(balance));
      ASSERT_TRUE(shards);
      for (const Round& round : shards->kv.rounds) {
        EXPECT_LE(round.capacity, shards->shapes.own_columns);
      }
      for (const Round& round : shards->q.rounds) {
        EXPECT_LE(round.capacity, shards->shapes.own_rows);
      }
      if (tiles % 4 == 0 && balance == Balance::contiguous) {
        const Moved& f = shards->report.forward;
        EXPECT_LE(f.sent, f.all_gather) << tiles;
      }
    }
  }
}

// The shapes are those of rounds; the bytes sent are those that must travel.
TEST(Shards, ARaggedExchangeSendsWhatItMust) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    OwnedFacts facts;
    facts.doc_ids = drawn_ids(seed, 8192);
    auto batch =
        OwnedBatch::make(request_of("causal & documents", 8192), facts);
    ASSERT_TRUE(batch);
    for (const Balance balance : {Balance::contiguous, Balance::headtail,
                                  Balance::rows, Balance::tasks}) {
      ShardOptions o = options_of(balance);
      auto rounds = make_shards(*batch, mesh_of("seq=8"), o);
      o.exchange = TileExchange::ragged;
      auto ragged = make_shards(*batch, mesh_of("seq=8"), o);
      ASSERT_TRUE(rounds && ragged);
      EXPECT_NE(ragged->contract_key, rounds->contract_key);
      for (const auto moved : {&ShardReport::forward, &ShardReport::backward}) {
        const Moved& fixed = rounds->report.*moved;
        const Moved& m = ragged->report.*moved;
        EXPECT_EQ(fixed.sent, fixed.capacity);
        EXPECT_EQ(m.sent, m.needed);
        EXPECT_GE(m.capacity, m.sent);
        if (balance > Balance::headtail) continue;  // others assign rows anew
        EXPECT_EQ(m.needed, fixed.needed);
        EXPECT_EQ(m.capacity, fixed.capacity);
      }
    }
  }
}

// Padding heads take space in every tile.
TEST(Shards, ARaggedExchangeSendsPaddedHeads) {
  auto batch = OwnedBatch::make(request_of("causal", 128), {});
  ASSERT_TRUE(batch);
  ShardOptions o = options_of(Balance::contiguous);
  o.exchange = TileExchange::ragged;
  o.uneven = true;
  o.shape.heads = o.shape.kv_heads = 3;
  auto shards = make_shards(*batch, mesh_of("seq=2,head=2"), o);
  ASSERT_TRUE(shards) << shards.error().message;
  const Moved& f = shards->report.forward;
  EXPECT_EQ(f.sent * 3, f.needed * 4);
}

// By hand: 8 rows of one causal document on two shards.
TEST(Shards, CountsBytesAsByHand) {
  auto batch = OwnedBatch::make(request_of("causal", 128), {});
  ASSERT_TRUE(batch);
  const ShardOptions o = options_of(Balance::contiguous);
  auto shards = make_shards(*batch, mesh_of("seq=2"), o);
  ASSERT_TRUE(shards) << shards.error().message;
  // Rows 0 to 3 have 10 tiles, rows 4 to 7 have 26 and need columns 0 to 3.
  EXPECT_EQ(shards->shards[0].steps, 10);
  EXPECT_EQ(shards->shards[1].steps, 26);
  EXPECT_EQ(shards->report.work_max_over_mean, 26.0 / 18);
  EXPECT_EQ(shards->shards[0].early_work, 10);
  EXPECT_EQ(shards->shards[1].early_work, 10);
  EXPECT_EQ(shards->report.early_work, 20.0 / 36);
  EXPECT_EQ(shards->report.kv_tiles, (std::vector<int64_t>{0, 4, 0, 0}));
  const int64_t tile = 2 * 16 * (8 + 8) * 2;  // KV heads, tokens, dims, bytes
  const Moved& f = shards->report.forward;
  EXPECT_EQ(f, (Moved{4 * tile, 8 * tile, 8 * tile, 4 * tile, 8 * tile}));
  const Moved& b = shards->report.backward;
  // Gradients are sent back in float32; K and V are sent in bf16.
  EXPECT_EQ(b, (Moved{12 * tile, 24 * tile, 24 * tile, 12 * tile, 24 * tile}));
  EXPECT_EQ(shards->kv.rounds, (std::vector<Round>{{1, 4}}));
  EXPECT_EQ(shards->kv.send[0][0], (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_TRUE(shards->kv.send[1][0].empty());
}

// A gradient of the log-sum-exp adds 4 bytes for each query and head of a moved
// task, in the backward pass, and places nothing anew.
TEST(Shards, CountsTheGradientOfTheLogSumExp) {
  auto batch = OwnedBatch::make(request_of("causal", 512), {});
  ASSERT_TRUE(batch);
  for (const TileExchange exchange :
       {TileExchange::rounds, TileExchange::ragged, TileExchange::gather}) {
    ShardOptions o = options_of(Balance::tasks);
    o.exchange = exchange;
    auto without = make_shards(*batch, mesh_of("seq=4,copy=2"), o);
    o.dlse = true;
    auto with = make_shards(*batch, mesh_of("seq=4,copy=2"), o);
    ASSERT_TRUE(without) << without.error().message;
    ASSERT_TRUE(with) << with.error().message;
    EXPECT_EQ(with->report.forward, without->report.forward);
    EXPECT_EQ(with->contract_key, without->contract_key);
    EXPECT_EQ(with->q.send, without->q.send);
    EXPECT_EQ(with->kv.send, without->kv.send);
    int64_t moved = 0, room = 0;
    for (const auto& of_shard : with->q.send) {
      for (const auto& tiles : of_shard) {
        moved += static_cast<int64_t>(tiles.size());
      }
    }
    for (const Round& r : with->q.rounds) room += 4 * r.capacity;
    EXPECT_GT(moved, 0);
    const int64_t tile = o.shape.heads * 16 * 4 * 2;  // of both copies
    const Moved& a = without->report.backward;
    const Moved& b = with->report.backward;
    EXPECT_EQ(b.needed - a.needed, moved * tile);
    EXPECT_EQ(b.capacity - a.capacity, room * tile);
    const bool ragged = exchange == TileExchange::ragged;
    EXPECT_EQ(b.sent - a.sent, (ragged ? moved : room) * tile);
    EXPECT_GT(b.busiest, a.busiest);
    EXPECT_EQ(b.all_gather, a.all_gather);
  }
}

TEST(Shards, PacksStepsWithTheirClasses) {
  Request r = request_of("causal", 120);  // the last tile is ragged
  auto batch = OwnedBatch::make(r, {});
  ASSERT_TRUE(batch);
  auto shards =
      make_shards(*batch, mesh_of("seq=2"), options_of(Balance::contiguous));
  ASSERT_TRUE(shards);
  auto steps = pack_shard(*batch, *shards, 1, false);
  ASSERT_TRUE(steps);
  // Row 3 is tile row 7, which crosses q_len: full tiles are class 3.
  const Step last = steps->steps.back();
  EXPECT_EQ(last.row(), 3);
  EXPECT_TRUE(last.last());
  const Step crossing = steps->steps[steps->steps.size() - 2];
  EXPECT_EQ(crossing.step_class(), 3);
  EXPECT_EQ(error_of(pack_shard(*batch, *shards, 2, false)),
            "[shard] a shard must be between 0 and 1, found 2");
}

}  // namespace
}  // namespace tessera
