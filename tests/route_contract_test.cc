// tests/route_contract_test.cc: batches of other documents, arrays and picks
// under fixed ceilings have one contract, and no result in common.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "tessera/contract.h"
#include "tessera/route.h"

namespace tessera {
namespace {

TEST(RouteContract, TwoHundredBatchesHaveOne) {
  constexpr int64_t kTokens = 256;
  constexpr int64_t kDim = 8;
  Request request;
  request.masks = {*parse_mask("causal & documents & routed(3, 16)")};
  request.q_len = request.kv_len = kTokens;
  request.tile = {32, 16};
  request.ceilings = {256, 16};
  RouteSettings settings;
  settings.compression = 16;
  settings.stride = 8;
  settings.query_tile = 32;
  settings.max_union = 16;
  auto named = settings_of(request, settings);
  ASSERT_TRUE(named) << named.error().message;
  std::set<std::string> keys;
  std::set<std::vector<int32_t>> picks;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    std::vector<float> q(2 * kTokens * kDim), k(kTokens * kDim);
    for (float& x : q) x = normal(random);
    for (float& x : k) x = normal(random);
    std::vector<int32_t> ids(kTokens);
    int32_t id = 0;
    for (int32_t& x : ids) x = id += random() % 90 == 0;
    Facts facts;
    facts.doc_ids = ids;
    RouteInputs in;
    in.q = TensorView::bhsd(q.data(), Dtype::f32, 1, 2, kTokens, kDim);
    in.k = TensorView::bhsd(k.data(), Dtype::f32, 1, 1, kTokens, kDim);
    named->meaning =
        seed % 2 == 0 ? RouteMeaning::exact : RouteMeaning::tile_union;
    auto routed = route(request, facts, in, *named);
    ASSERT_TRUE(routed) << routed.error().message;
    EXPECT_EQ(routed->unions.capacity, 16);
    const Facts all = routed->facts(facts);
    auto plan = make_plan(request, all);
    ASSERT_TRUE(plan) << plan.error().message;
    auto contract = make_contract(request, all, *plan);
    ASSERT_TRUE(contract) << contract.error().message;
    keys.insert(contract->key);
    picks.insert(routed->picks);
  }
  EXPECT_EQ(keys.size(), 1U);
  EXPECT_EQ(picks.size(), 200U);
}

}  // namespace
}  // namespace tessera
