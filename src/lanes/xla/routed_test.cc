// lanes/xla/routed_test.cc: the xla lane with a router's picks, forward and
// backward against fp64. One program serves every batch.
#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "lanes/xla/lane.h"
#include "plan/make_plan.h"
#include "tessera/route.h"
#include "tests/plugins.h"
#include "tests/routed_batch.h"

namespace tessera::xla {
namespace {

using testing::AttentionArrays;
using testing::routed_batch;
using testing::RoutedBatch;
using testing::Wanted;
using testing::wanted;

std::string text_of(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

using Choice = std::tuple<const char*, XlaMethod, RouteMeaning>;

class XlaRouted : public ::testing::TestWithParam<Choice> {
 protected:
  void SetUp() override {
    testing::look_in_venv();
    XlaOptions options;
    options.plugin = std::get<0>(GetParam());
    options.method = std::get<1>(GetParam());
    auto opened = XlaLane::open(options);
    if (testing::is_absent(opened)) GTEST_SKIP() << opened.error().message;
    ASSERT_TRUE(opened) << opened.error().message;
    lane_ = std::move(*opened);
  }
  RouteMeaning meaning() const { return std::get<2>(GetParam()); }

  std::optional<XlaLane> lane_;
};
INSTANTIATE_TEST_SUITE_P(
    Each, XlaRouted,
    ::testing::Combine(::testing::Values("xla_cpu_pjrt", "lammps_jax_pjrt_cpu"),
                       ::testing::Values(XlaMethod::worklist, XlaMethod::dense),
                       ::testing::Values(RouteMeaning::exact,
                                         RouteMeaning::tile_union)),
    [](const auto& each) {
      return std::string(std::get<0>(each.param)) + "_" +
             std::string(to_string(std::get<1>(each.param))) + "_" +
             std::string(to_string(std::get<2>(each.param)));
    });

TEST_P(XlaRouted, ChangedPicksNeverCompile) {
  int64_t forward_compiles = 0, backward_compiles = 0;
  std::set<std::string> keys;
  std::set<std::string> results;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const RoutedBatch batch = routed_batch(seed, meaning());
    AttentionArrays arrays(batch.attention);
    // Computed from the oracle's picks; the lane gets the router's.
    const Wanted want = wanted(arrays, true);
    Request request = arrays.request;
    request.ceilings = testing::kRoutedCeilings;
    auto routed = route(request, batch.route.facts(), batch.route.inputs(),
                        batch.route.settings);
    ASSERT_TRUE(routed) << routed.error().message;
    const Facts facts = routed->facts(batch.route.facts());
    auto plan = plan::make_plan(request, facts);
    ASSERT_TRUE(plan) << plan.error().message;
    const auto forward =
        lane_->forward(*BorrowedBatch::make(request, facts),
                       batch.attention.shape, arrays.forward(true));
    ASSERT_TRUE(forward) << forward.error().message;
    forward_compiles += forward->compiles;
    const auto backward = lane_->backward(
        *BorrowedBatch::make(request, facts), batch.attention.shape,
        arrays.forward(true), arrays.gradients());
    ASSERT_TRUE(backward) << backward.error().message;
    backward_compiles += backward->compiles;
    keys.insert(forward->contract.key);
    EXPECT_EQ(forward_fault(want, arrays.forward(true)), std::nullopt);
    EXPECT_EQ(backward_fault(batch.attention, want, arrays.gradients()),
              std::nullopt);
    EXPECT_EQ(arrays.spilled(), std::nullopt);
    results.insert(text_of(arrays.bits()));
  }
  EXPECT_EQ(forward_compiles, 1);
  EXPECT_EQ(backward_compiles, 1);
  EXPECT_EQ(keys.size(), 1U);
  EXPECT_EQ(results.size(), 10U);
}

// The ceilings suffice to compile what every batch will need.
TEST_P(XlaRouted, WarmingCompilesWhatABatchNeeds) {
  const RoutedBatch batch = routed_batch(1, meaning());
  AttentionArrays arrays(batch.attention);
  Request request = arrays.request;
  request.ceilings = testing::kRoutedCeilings;
  Facts present;
  present.doc_ids = Ints{};
  present.picks = Picks{{}, 2, 2, meaning(), testing::kRoutedTile};
  const auto warm = lane_->warm(request, present, {batch.attention.shape});
  ASSERT_TRUE(warm) << warm.error().message;
  auto routed = route(request, batch.route.facts(), batch.route.inputs(),
                      batch.route.settings);
  ASSERT_TRUE(routed) << routed.error().message;
  const Facts facts = routed->facts(batch.route.facts());
  const auto ran = lane_->forward(*BorrowedBatch::make(request, facts),
                                  batch.attention.shape, arrays.forward(true));
  ASSERT_TRUE(ran) << ran.error().message;
  EXPECT_EQ(ran->compiles, 0);
  EXPECT_EQ(ran->contract.key, warm->contract.key);
}

}  // namespace
}  // namespace tessera::xla
