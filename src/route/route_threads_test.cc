// Routing on any number of threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tessera/route.h"

namespace tessera::routing {
namespace {

TEST(RouteThreads, AnyNumberGivesTheSameResult) {
  constexpr int64_t kTokens = 700;
  constexpr int64_t kDim = 16;
  std::mt19937_64 random(9);
  std::normal_distribution<float> normal;
  std::vector<float> q(2 * 4 * kTokens * kDim), k(2 * 2 * kTokens * kDim);
  for (float& x : q) x = normal(random);
  for (float& x : k) x = normal(random);
  std::vector<int32_t> ids;
  while (ids.size() < 2 * kTokens) {
    const auto id = static_cast<int32_t>(random() % 5);
    ids.resize(std::min<size_t>(2 * kTokens, ids.size() + 1 + random() % 200),
               id);
  }
  Request request;
  request.masks = {*parse_mask("causal & documents & routed(4, 16)")};
  request.batch = 2;
  request.q_len = request.kv_len = kTokens;
  Facts facts;
  facts.doc_ids = ids;
  RouteInputs in;
  in.q = TensorView::bhsd(q.data(), Dtype::f32, 2, 4, kTokens, kDim);
  in.k = TensorView::bhsd(k.data(), Dtype::f32, 2, 2, kTokens, kDim);
  RouteSettings settings;
  settings.top = 4;
  settings.block = 16;
  settings.compression = 8;
  settings.stride = 4;
  settings.kv_tile = 64;
  settings.query_tile = 32;
  for (const bool hierarchical : {false, true}) {
    settings.hierarchical = hierarchical;
    settings.top_metas = 2;
    settings.meaning =
        hierarchical ? RouteMeaning::tile_union : RouteMeaning::exact;
    RouteOptions options;
    options.threads = 1;
    auto alone = route(request, facts, in, settings, options);
    ASSERT_TRUE(alone) << alone.error().message;
    for (const int threads : {2, 3, 8}) {
      options.threads = threads;
      auto many = route(request, facts, in, settings, options);
      ASSERT_TRUE(many) << many.error().message;
      EXPECT_EQ(many->picks, alone->picks);
      EXPECT_EQ(many->unions, alone->unions);
      EXPECT_EQ(many->run_picks, alone->run_picks);
      EXPECT_EQ(many->counts, alone->counts);
    }
    // The error is that of the first tile, independent of thread timing.
    std::vector<float> bad = k;
    for (size_t i = 0; i < bad.size(); i += 97) bad[i] = NAN;
    RouteInputs broken = in;
    broken.k = TensorView::bhsd(bad.data(), Dtype::f32, 2, 2, kTokens, kDim);
    options.threads = 1;
    auto first = route(request, facts, broken, settings, options);
    options.threads = 4;
    auto again = route(request, facts, broken, settings, options);
    ASSERT_FALSE(first);
    ASSERT_FALSE(again);
    EXPECT_EQ(again.error().message, first.error().message);
  }
}

}  // namespace
}  // namespace tessera::routing
