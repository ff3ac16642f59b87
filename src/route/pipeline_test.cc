// Tests of the whole router: MoBA's rule, given picks, every refusal.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <random>

#include "tessera/route.h"

namespace tessera::routing {
namespace {

using Ids = std::vector<int32_t>;

constexpr float kInf = std::numeric_limits<float>::infinity();

// 32 queries and keys in blocks of 4; 2 query heads on 1 KV head of dim 3.
class Route : public ::testing::Test {
 protected:
  Route() {
    request_.masks = {*parse_mask("causal & routed(top=3, block=4)")};
    request_.q_len = request_.kv_len = 32;
    settings_.top = 3;
    settings_.block = settings_.compression = 4;
    settings_.stride = 2;
    settings_.kv_tile = 8;
    settings_.query_tile = 8;
    std::mt19937_64 random(4);
    std::normal_distribution<float> normal;
    for (float& x : q_) x = normal(random);
    for (float& x : k_) x = normal(random);
    inputs_.q = TensorView::bhsd(q_.data(), Dtype::f32, 1, 2, 32, 3);
    inputs_.k = TensorView::bhsd(k_.data(), Dtype::f32, 1, 1, 32, 3);
  }

  Result<RouteResult> run(const RouteOptions& options = {}) const {
    return route(request_, facts_, inputs_, settings_, options);
  }
  std::string message() const {
    auto r = run();
    return r ? "" : r.error().message;
  }
  // 32 queries of two slots, all unused except those of `query`.
  static Ids given(size_t query, int32_t a, int32_t b) {
    Ids out(64, -1);
    out[2 * query] = a;
    out[2 * query + 1] = b;
    return out;
  }

  Request request_;
  Facts facts_;
  RouteSettings settings_;
  std::vector<float> q_ = std::vector<float>(192);
  std::vector<float> k_ = std::vector<float>(96);
  RouteInputs inputs_;
};

// MoBA's definition: a gate for each query head, query and block. The own
// block's gate is infinite, blocks that are not wholly past are excluded, and
// the best blocks stay.
TEST_F(Route, MobaIsOneSetting) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    std::mt19937_64 random(seed);
    const int64_t n = 20 + static_cast<int64_t>(random() % 40);
    const int64_t block = 2 + static_cast<int64_t>(random() % 6);
    const int64_t top = 1 + static_cast<int64_t>(random() % 4);
    const int64_t cut =
        static_cast<int64_t>(random() % static_cast<uint64_t>(n));
    const bool parted = seed % 2 == 1;  // two documents: [0, cut) and the rest
    std::vector<float> q, k;
    for (int64_t i = 0; i < 4 * n * 2; ++i) {  // small integers: ties
      q.push_back(static_cast<float>(random() % 3) - 1);
    }
    for (int64_t i = 0; i < 2 * n * 2; ++i) {
      k.push_back(static_cast<float>(random() % 3) - 1);
    }
    Ids ids;
    for (int64_t t = 0; t < n; ++t) ids.push_back(t < cut ? 5 : 6);
    Request request;
    request.masks = {
        *make_mask(parted ? causal() & documents() & routed(top, block)
                          : causal() & routed(top, block))};
    request.q_len = request.kv_len = n;
    Facts facts;
    if (parted) facts.doc_ids = ids;
    RouteInputs in;
    in.q = TensorView::bhsd(q.data(), Dtype::f32, 1, 4, n, 2);
    in.k = TensorView::bhsd(k.data(), Dtype::f32, 1, 2, n, 2);
    auto r = route(request, facts, in, moba_settings(top, block));
    ASSERT_TRUE(r) << r.error().message;
    ASSERT_EQ(r->heads, 4);
    const int64_t blocks = (n + block - 1) / block;
    for (int64_t h = 0; h < 4; ++h) {
      for (int64_t t = 0; t < n; ++t) {
        std::vector<float> gate(static_cast<size_t>(blocks), -kInf);
        for (int64_t j = 0; j < blocks; ++j) {
          float mean[2] = {0, 0};
          int64_t count = 0;
          int64_t last = -1;
          for (int64_t s = j * block; s < std::min(n, (j + 1) * block); ++s) {
            if (parted &&
                ids[static_cast<size_t>(s)] != ids[static_cast<size_t>(t)]) {
              continue;
            }
            for (int64_t d = 0; d < 2; ++d) {
              mean[d] += k[static_cast<size_t>((h / 2 * n + s) * 2 + d)];
            }
            ++count;
            last = s;
          }
          if (j == t / block) {
            gate[static_cast<size_t>(j)] = kInf;
          } else if (count > 0 && last <= t) {
            float dot = 0;
            for (int64_t d = 0; d < 2; ++d) {
              dot += q[static_cast<size_t>((h * n + t) * 2 + d)] *
                     (mean[d] / static_cast<float>(count));
            }
            gate[static_cast<size_t>(j)] = dot;
          }
        }
        Ids order;
        for (int32_t j = 0; j < blocks; ++j) order.push_back(j);
        std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
          return gate[static_cast<size_t>(a)] > gate[static_cast<size_t>(b)];
        });
        Ids want;
        for (int64_t i = 0; i < std::min(top, blocks); ++i) {
          const int32_t j = order[static_cast<size_t>(i)];
          if (gate[static_cast<size_t>(j)] != -kInf) want.push_back(j);
        }
        std::sort(want.begin(), want.end());
        want.resize(static_cast<size_t>(top), -1);
        const auto at = r->picks.begin() + (h * n + t) * top;
        EXPECT_EQ(Ids(at, at + top), want)
            << "seed " << seed << ", head " << h << ", query " << t;
      }
    }
  }
}

TEST_F(Route, NanScoresAreNamed) {
  k_[3 * 9] = NAN;  // key 9, of block 2: seen from query 9 on, or its block's
  EXPECT_EQ(message(),
            "[route] scores must not be NaN, found one for query 11 and block "
            "2 of batch row 0, head 0");
  settings_.hierarchical = true;
  settings_.meta_ratio = 2;
  EXPECT_EQ(message(),
            "[route] scores must not be NaN, found one for query 15 and meta 1 "
            "of batch row 0, head 0");
  // Values that no query scores have no effect.
  settings_.hierarchical = false;
  k_[3 * 9] = 0;
  k_[3 * 31] = NAN;
  q_[0] = NAN;  // query 0 scores no block but its own
  request_.q_len = 31;
  const Ids offsets = {0};
  facts_.q_offsets = offsets;
  std::vector<float> q(q_.begin(), q_.begin() + 31 * 3);
  inputs_.q = TensorView::bhsd(q.data(), Dtype::f32, 1, 1, 31, 3);
  EXPECT_EQ(message(), "");
}

TEST_F(Route, InfiniteScoresArePickedAsAnyOther) {
  k_[3 * 4] = kInf;  // block 1: +inf or -inf by the sign of q
  for (size_t i = 0; i < q_.size(); i += 3) q_[i] = 1;
  auto r = run();
  ASSERT_TRUE(r) << r.error().message;
  const Ids last(r->picks.end() - 3, r->picks.end());
  EXPECT_NE(std::find(last.begin(), last.end(), 1), last.end());
}

TEST_F(Route, SettingsMustFitEachOther) {
  const RouteSettings good = settings_;
  const auto with = [&](auto change) {
    settings_ = good;
    change(settings_);
    return message();
  };
  EXPECT_EQ(with([](RouteSettings&) {}), "");
  EXPECT_EQ(with([](RouteSettings& s) { s.stride = 3; }),
            "[route] stride must divide block, found 3 for 4");
  EXPECT_EQ(with([](RouteSettings& s) { s.kv_tile = 7; }),
            "[route] stride must divide kv_tile, found 2 for 7");
  EXPECT_EQ(with([](RouteSettings& s) { s.compression = 5; }),
            "[route] compression must be at most block 4, found 5");
  EXPECT_EQ(with([](RouteSettings& s) { s.sink_blocks = 3; }),
            "[route] sink_blocks must leave a pick for the own block, found 3 "
            "for top 3");
  EXPECT_EQ(with([](RouteSettings& s) { s.query_tile = 0; }),
            "[route] query_tile must be from 1 to 1073741824, found 0");
  EXPECT_EQ(with([](RouteSettings& s) { s.top = 2; }),
            "[route] top must be the mask's 3, found 2");
  EXPECT_EQ(with([](RouteSettings& s) { s.block = 8; }),
            "[route] block must be the mask's 4, found 8");
  EXPECT_EQ(with([](RouteSettings& s) {
              s.rule = RouteRule::query_tile;
              s.query_tile = 16;
            }),
            "[route] top must hold all forced blocks, found 3 for 4 in tile "
            "row 0 of batch row 0");
  EXPECT_EQ(with([](RouteSettings& s) {
              s.hierarchical = true;
              s.meta_ratio = 1;
              s.top_metas = 1;
              s.sink_blocks = 1;
            }),
            "[route] top_metas must hold all forced blocks, found 1 for 2 in "
            "tile row 0 of batch row 0");
}

TEST_F(Route, ArraysMustFitEachOther) {
  const RouteInputs good = inputs_;
  inputs_.k->dim = 2;
  EXPECT_EQ(message(),
            "[route] q and k must have one dtype and dim, found F32 of 3 and "
            "F32 of 2");
  inputs_ = good;
  inputs_.q->tokens = 31;
  EXPECT_EQ(message().substr(0, 33), "[route] q must be [1, heads, 32, ");
  inputs_ = good;
  inputs_.q->dtype = Dtype::i32;
  EXPECT_EQ(message(),
            "[route] q must be an array of F32, BF16 or F16, found I32");
  inputs_ = good;
  inputs_.q->token_stride = -3;
  EXPECT_EQ(message(),
            "[route] strides of q must be from 0 to 1125899906842624, found "
            "-3");
  inputs_ = good;
  inputs_.k.reset();
  EXPECT_EQ(message(), "[route] routing needs q and k, or picks, found no k");
  inputs_ = {};
  inputs_.k = good.q, inputs_.q = good.k;
  EXPECT_EQ(message(), "[route] kv_heads must divide heads, found 2 for 1");
}

// A long stride is allowed, but not with so many rows that offsets overflow.
TEST_F(Route, ArraysEndWhereAnIndexCan) {
  request_.q_len = 1 << 20;
  const Ids offsets = {0};
  facts_.q_offsets = offsets;
  inputs_.q->tokens = 1 << 20;
  inputs_.q->token_stride = int64_t{1} << 50;
  EXPECT_EQ(message(),
            "[route] q must reach 1152921504606846976 numbers at most, found "
            "more");
}

TEST_F(Route, GivenPicksEnterAtLegality) {
  const Ids picks = given(9, 1, 2);
  inputs_ = {};
  inputs_.picks = Picks{picks, 1, 2};
  auto r = run();
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ(r->picks, picks);
  EXPECT_EQ(r->counts.scores, 0);
  EXPECT_TRUE(r->warnings.empty());
  EXPECT_EQ(r->unions.blocks, (Ids{1, 2}));

  const Ids future = given(9, 1, 3);
  inputs_.picks = Picks{future, 1, 2};
  r = run();
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ(r->picks, given(9, 1, -1));
  EXPECT_EQ(r->counts.removed_future, 1);
  EXPECT_EQ(r->warnings,
            std::vector<std::string>{
                "[route] a pick must not be from the future, found block 3 for "
                "query 9 of batch row 0, head 0 (1 removed in all)"});
  settings_.strict = true;
  EXPECT_EQ(message(),
            "[route] a pick must not be from the future, found block 3 for "
            "query 9 of batch row 0, head 0");
}

// Capacity is checked after legality: removed picks do not count.
TEST_F(Route, CapacityIsCheckedAfterLegality) {
  const Ids picks = given(9, 1, 7);
  inputs_ = {};
  inputs_.picks = Picks{picks, 1, 2};
  request_.ceilings.max_union = 1;
  EXPECT_EQ(message(), "");
  const Ids two = given(9, 1, 2);
  inputs_.picks = Picks{two, 1, 2};
  EXPECT_EQ(message(),
            "[route] a tile row's union must be at most max_union 1 blocks, "
            "found 2 for "
            "tile row 1 of batch row 0, head 0");
}

TEST_F(Route, PicksOfTilesAreAllTheirQueries) {
  const Ids tiles = {0, -1, 1, 3, 2, 3, 0, 7};  // four tiles of two slots
  inputs_ = {};
  inputs_.tile_picks = Picks{tiles, 1, 2};
  auto r = run();
  ASSERT_TRUE(r) << r.error().message;
  for (int32_t q = 0; q < 32; ++q) {
    Ids want;
    for (const int32_t b : {tiles[static_cast<size_t>(q / 8 * 2)],
                            tiles[static_cast<size_t>(q / 8 * 2 + 1)]}) {
      if (b >= 0 && b * 4 <= q) want.push_back(b);
    }
    want.resize(2, -1);
    const auto at = r->picks.begin() + q * 2;
    EXPECT_EQ(Ids(at, at + 2), want) << "query " << q;
  }
  inputs_.picks = inputs_.tile_picks;
  EXPECT_EQ(message(),
            "[route] picks are given for queries or for query tiles, found "
            "both");
}

// The metas of coarse routing give the same picks when given by the caller.
TEST_F(Route, MetasEnterBeforeTheirChildren) {
  settings_.hierarchical = true;
  settings_.meta_ratio = 2;
  settings_.top_metas = 4;
  auto all = run();
  ASSERT_TRUE(all) << all.error().message;
  Ids metas;
  for (int i = 0; i < 32; ++i) metas.insert(metas.end(), {0, 1, 2, 3});
  inputs_.metas = Picks{metas, 1, 4};
  auto r = run();
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ(r->picks, all->picks);
  // Only one meta is given: every other block is forced or absent.
  Ids one;
  for (int i = 0; i < 32; ++i) one.push_back(1);
  inputs_.metas = Picks{one, 1, 1};
  r = run();
  ASSERT_TRUE(r) << r.error().message;
  for (size_t i = 0; i < r->picks.size(); ++i) {
    const int32_t p = r->picks[i];
    const auto own = static_cast<int32_t>(i / 3 / 4);
    EXPECT_TRUE(p < 0 || p == own || p / 2 == 1) << i;
  }
  settings_.hierarchical = false;
  EXPECT_EQ(message(),
            "[route] metas are of single queries and of hierarchical routing, "
            "found them for exhaustive routing");
}

TEST_F(Route, MalformedMetasAreRefusedBeforeAnyWork) {
  settings_.hierarchical = true;
  Ids metas(32, 0);
  metas[7] = 9;
  inputs_.metas = Picks{metas, 1, 1};
  RouteOptions options;
  options.until = RouteStage::pool;
  bool pooled = false;
  options.after = [&](RouteStage) { pooled = true; };
  auto r = run(options);
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().message,
            "[route] metas must be from -1 to 0, found 9 for query 7 of batch "
            "row 0, head 0");
  EXPECT_FALSE(pooled);
}

// If top_metas exceeds the number of metas, all are kept.
TEST_F(Route, NoMoreMetasThanThereAre) {
  settings_.hierarchical = true;
  settings_.meta_ratio = 2;
  settings_.top_metas = 4;
  auto all = run();
  ASSERT_TRUE(all) << all.error().message;
  RouteOptions options;
  options.memory = int64_t{1} << 23;  // 32 queries would keep twice as much
  options.threads = 1;
  settings_.top_metas = 65536;
  auto r = run(options);
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_EQ(r->picks, all->picks);
}

// A tile scored in parts picks as small tiles do.
TEST_F(Route, LongTilesPickAsShortOnes) {
  constexpr int64_t kTokens = 700;
  std::mt19937_64 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> q(2 * kTokens * 3), k(kTokens * 3);
  for (float& x : q) x = normal(random);
  for (float& x : k) x = normal(random);
  Ids ids;
  for (int64_t t = 0; t < kTokens; ++t) {
    ids.push_back(static_cast<int32_t>(t / 50 % 3));
  }
  facts_.doc_ids = ids;
  request_.masks = {*parse_mask("causal & documents & routed(3, 4)")};
  request_.q_len = request_.kv_len = kTokens;
  inputs_.q = TensorView::bhsd(q.data(), Dtype::f32, 1, 2, kTokens, 3);
  inputs_.k = TensorView::bhsd(k.data(), Dtype::f32, 1, 1, kTokens, 3);
  for (const RouteRule rule : {RouteRule::kv_head, RouteRule::query_head}) {
    for (const bool hierarchical : {false, true}) {
      settings_.rule = rule;
      settings_.hierarchical = hierarchical;
      settings_.top_metas = 3;
      settings_.query_tile = 32;
      auto tiles = run();
      ASSERT_TRUE(tiles) << tiles.error().message;
      settings_.query_tile = 100000;
      auto one = run();
      ASSERT_TRUE(one) << one.error().message;
      EXPECT_EQ(one->picks, tiles->picks);
      EXPECT_EQ(one->counts.scores, tiles->counts.scores);
      EXPECT_EQ(one->counts.tile_rows, one->heads);
    }
  }
}

TEST_F(Route, MemoryIsAskedForBeforeItIsTaken) {
  RouteOptions options;
  options.memory = 1000;
  bool worked = false;
  options.after = [&](RouteStage) { worked = true; };
  auto r = run(options);
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().kind, ErrorKind::limit);
  const std::string rule =
      "[route] pooled keys, scores and picks must fit 1000 bytes of memory, "
      "found ";
  EXPECT_EQ(r.error().message.substr(0, rule.size()), rule);
  const Ids picks = given(9, 1, 2);
  inputs_ = {};
  inputs_.picks = Picks{picks, 1, 2};
  options.memory = 700;  // 64 picks and slots, the unions of four tiles
  EXPECT_FALSE(run(options));
  EXPECT_FALSE(worked);
  options.memory = 800;
  EXPECT_TRUE(run(options));
  // The memory that the union meaning adds is known only after the unions.
  settings_.meaning = RouteMeaning::tile_union;
  EXPECT_FALSE(run(options));
  options.memory += 4 * 64;
  EXPECT_TRUE(run(options));
}

// A failed allocation is an error too.
TEST_F(Route, NoMemoryIsAnError) {
  RouteOptions options;
  options.after = [](RouteStage) { throw std::bad_alloc(); };
  auto r = run(options);
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().kind, ErrorKind::limit);
  EXPECT_EQ(r.error().message,
            "[route] working memory must be there, found none left for [1, "
            "32] queries of 32 keys");
}

// Each query of a tile takes the picks that it may follow. strict refuses picks
// that no query of the tile may follow.
TEST_F(Route, StrictJudgesTilesAsAWhole) {
  Ids tiles = {0, 1, 1, 3, 2, 5, 6, 7};  // four tiles of two blocks each
  const Ids counts = {30};               // the last two queries see nothing
  request_.masks = {*parse_mask("causal & routed(top=3, block=4)")};
  facts_.valid_token_counts = counts;
  inputs_ = {};
  inputs_.tile_picks = Picks{tiles, 1, 2};
  settings_.strict = true;
  auto r = run();
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_TRUE(r->warnings.empty());
  EXPECT_GT(r->counts.removed_future, 0);
  EXPECT_GT(r->counts.removed_invalid, 0);
  tiles[5] = 6;  // keys 24 to 27, for the tile of queries 16 to 23
  EXPECT_EQ(message(),
            "[route] a pick must not be from the future, found block 6 for "
            "query tile 2 of batch row 0, head 0");
  settings_.strict = false;
  r = run();
  ASSERT_TRUE(r) << r.error().message;
  ASSERT_EQ(r->warnings.size(), 1U);
  EXPECT_NE(r->warnings[0].find("(1 removed in all)"), std::string::npos);
}

// The queries of a tile pick together, so some get blocks from their future.
// strict accepts that.
TEST_F(Route, StrictLeavesOwnPicksAlone) {
  settings_.rule = RouteRule::query_tile;
  settings_.strict = true;
  auto r = run();
  ASSERT_TRUE(r) << r.error().message;
  EXPECT_GT(r->counts.removed_future, 0);
}

TEST_F(Route, HeadsOfGivenPicksAreThoseOfTheArrays) {
  request_.masks = {*parse_mask("causal & routed(top=3, block=4)")};
  const auto with = [&](int64_t heads) {
    const Ids picks(static_cast<size_t>(heads) * 64, -1);
    inputs_.picks = Picks{picks, heads, 2};
    return message();
  };
  EXPECT_EQ(with(1), "");
  EXPECT_EQ(with(2), "");
  EXPECT_EQ(with(3),
            "[route] picks must be of 1 head, the 1 KV heads or the 2 query "
            "heads, found 3 heads");
}

TEST(RouteSettingsOfMoba, FitAnyBlock) {
  const RouteSettings s = moba_settings(2, kMaxTokens);
  EXPECT_EQ(s.kv_tile % s.stride, 0);
  EXPECT_LE(s.kv_tile, kMaxTokens);
}

TEST_F(Route, StopsAfterAStage) {
  for (int i = 0; i < kRouteStages; ++i) {
    std::vector<RouteStage> seen;
    RouteOptions options;
    options.until = static_cast<RouteStage>(i);
    options.after = [&](RouteStage s) { seen.push_back(s); };
    auto r = run(options);
    ASSERT_TRUE(r) << r.error().message;
    for (const RouteStage s : seen) EXPECT_LE(s, options.until);
    if (options.until != RouteStage::coarse) {
      EXPECT_EQ(seen.back(), options.until);
    }
    EXPECT_EQ(r->picks.empty(), options.until < RouteStage::top_n);
    EXPECT_EQ(r->unions.start.empty(), options.until < RouteStage::unions);
  }
}

TEST_F(Route, AMaskSaysTopAndBlock) {
  auto s = settings_of(request_, {});
  ASSERT_TRUE(s) << s.error().message;
  EXPECT_EQ(s->top, 3);
  EXPECT_EQ(s->block, 4);
  request_.masks = {*parse_mask("causal & blocks(16)")};
  s = settings_of(request_, {});
  ASSERT_TRUE(s);
  EXPECT_EQ(s->top, 8);
  EXPECT_EQ(s->block, 16);
  request_.masks = {*parse_mask("causal")};
  EXPECT_EQ(settings_of(request_, {}).error().message,
            "[route] a mask must name routed(top, block) or blocks(n), found "
            "none of them in causal");
  request_.masks = {*parse_mask("routed(2, 4)"), *parse_mask("routed(3, 4)")};
  EXPECT_EQ(settings_of(request_, {}).error().message,
            "[route] routed must pick one number of blocks in all masks, found "
            "2 and 3");
}

TEST_F(Route, PhasesSayWhereAGradientFlows) {
  ASSERT_EQ(route_phases().size(), 3U);
  EXPECT_FALSE(route_phases()[0].differentiable);
  EXPECT_FALSE(route_phases()[1].differentiable);
  EXPECT_TRUE(route_phases()[2].differentiable);
}

}  // namespace
}  // namespace tessera::routing
