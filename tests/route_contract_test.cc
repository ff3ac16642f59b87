// tests/route_contract_test.cc: batches of different documents, lengths, arrays
// and picks under fixed ceilings have one contract, and different results.
#include <gtest/gtest.h>

#include <set>

#include "plan/make_plan.h"
#include "tessera/batch.h"
#include "tests/random_case.h"
#include "tests/routed_batch.h"

namespace tessera::testing {
namespace {

class RouteContract : public ::testing::TestWithParam<RouteMeaning> {};
INSTANTIATE_TEST_SUITE_P(Each, RouteContract,
                         ::testing::Values(RouteMeaning::exact,
                                           RouteMeaning::tile_union),
                         [](const auto& each) {
                           return std::string(to_string(each.param));
                         });

std::string text_of(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

// Runs the router's picks on the cpu lane. Returns what is wrong with the
// result by the oracle's picks in fp64.
std::optional<std::string> routed_fault(AttentionArrays& arrays,
                                        const RoutedBatch& batch,
                                        std::set<std::string>& keys) {
  Request request = arrays.request;
  request.ceilings = kRoutedCeilings;
  auto routed = route(request, batch.route.facts(), batch.route.inputs(),
                      batch.route.settings);
  if (!routed) return routed.error().message;
  if (routed->unions.capacity != kRoutedCeilings.max_union) {
    return "the capacity is not the ceiling";
  }
  const Wanted want = wanted(arrays);
  const Facts all = routed->facts(batch.route.facts());
  auto plan = plan::make_plan(request, all);
  if (!plan) return plan.error().message;
  if (plan->meaning != batch.route.settings.meaning) {
    return "the plan records another meaning";
  }
  auto contract = make_contract(*BorrowedBatch::make(request, all));
  if (!contract) return contract.error().message;
  keys.insert(contract->key);
  arrays.request = request;
  arrays.facts = all;
  return cpu_fault(arrays, want, machine_isas().back(),
                   1 + static_cast<int>(batch.route.seed % 3));
}

TEST_P(RouteContract, TwoHundredBatchesHaveOneAndShareNothing) {
  std::set<std::string> keys;
  std::set<std::vector<int32_t>> picks;
  std::set<std::string> results;
  std::vector<uint8_t> first;
  const auto n = static_cast<uint64_t>(testing::case_count(200));
  for (uint64_t seed = 0; seed < n; ++seed) {
    const RoutedBatch batch = routed_batch(seed, GetParam());
    AttentionArrays arrays(batch.attention);
    const auto fault = routed_fault(arrays, batch, keys);
    ASSERT_FALSE(fault) << *fault << "\n" << batch.route.describe();
    picks.insert(*batch.attention.plan.picks);
    results.insert(text_of(arrays.bits()));
    if (seed == 0) first = arrays.bits();
  }
  EXPECT_EQ(keys.size(), 1U);
  EXPECT_GE(picks.size(), n - n / 50);  // some may have equal picks by chance
  EXPECT_EQ(results.size(), n);
  // The batches in between have no effect on the first one.
  const RoutedBatch again = routed_batch(0, GetParam());
  AttentionArrays arrays(again.attention);
  EXPECT_EQ(routed_fault(arrays, again, keys), std::nullopt);
  EXPECT_EQ(arrays.bits(), first);

  // The contract can be made before any batch.
  Request request = arrays.request;
  Facts present;
  present.doc_ids = Ints{};
  present.picks = Picks{{}, 2, 2, GetParam(), kRoutedTile};
  auto ceiling = make_ceiling_contract(request, present);
  ASSERT_TRUE(ceiling) << ceiling.error().message;
  EXPECT_EQ(ceiling->key, *keys.begin());
  EXPECT_EQ(ceiling->union_blocks, kRoutedCeilings.max_union);
}

// Each query picks two blocks; the union of its tile row is wider.
TEST_P(RouteContract, AUnionAboveItsCeilingNamesTheTileRow) {
  const RoutedBatch batch = routed_batch(3, GetParam());
  AttentionArrays arrays(batch.attention);
  Request request = arrays.request;
  request.ceilings.max_union = 2;
  auto routed = route(request, batch.route.facts(), batch.route.inputs(),
                      batch.route.settings);
  ASSERT_FALSE(routed);
  EXPECT_EQ(routed.error().kind, ErrorKind::limit);
  const std::string rule =
      "a tile row's union must be at most max_union 2 blocks, found ";
  EXPECT_EQ(routed.error().message.find("[route] " + rule), 0U)
      << routed.error().message;
  EXPECT_NE(routed.error().message.find(" for tile row "), std::string::npos);
  // A contract also refuses picks that no router checked.
  auto plan = plan::make_plan(request, arrays.facts);
  ASSERT_TRUE(plan);
  auto contract = make_contract(*BorrowedBatch::make(request, arrays.facts));
  ASSERT_FALSE(contract);
  EXPECT_EQ(contract.error().kind, ErrorKind::limit);
  EXPECT_EQ(contract.error().message.find("[contract] " + rule), 0U)
      << contract.error().message;
}

}  // namespace
}  // namespace tessera::testing
