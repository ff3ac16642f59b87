// plan/check_plan_test.cc: a correct plan passes, each mistake fails.
#include "plan/check_plan.h"

#include <gtest/gtest.h>

#include <optional>
#include <utility>

#include "tessera/batch.h"

namespace tessera::plan {
namespace {

class CheckPlan : public ::testing::Test {
 protected:
  void SetUp() override {
    Request request;
    request.masks = {*make_mask(causal() & window(19, 0))};
    request.q_len = request.kv_len = 70;
    request.tile = {16, 16};
    auto batch = OwnedBatch::make(request, {});
    ASSERT_TRUE(batch);
    plan_ = batch->plan();
    auto legality = Legality::bind(request, {});
    ASSERT_TRUE(legality);
    legality_.emplace(std::move(*legality));
  }

  PlanCheck check(int64_t sample) {
    return check_plan(*legality_, plan_, sample, 7);
  }

  Plan plan_;
  std::optional<Legality> legality_;
};

TEST_F(CheckPlan, PassesWhatIsRight) {
  const PlanCheck all = check(0);
  EXPECT_TRUE(all.right()) << all.first_wrong;
  EXPECT_EQ(all.tiles, 25);
  EXPECT_EQ(all.pairs, 70 * 70);
  const PlanCheck sampled = check(2);
  EXPECT_TRUE(sampled.right());
  EXPECT_EQ(sampled.tiles, 10);
}

TEST_F(CheckPlan, FindsAWrongClass) {
  Entry& entry = plan_.forward.entries[1];
  entry = Entry::of(entry.column(), entry.tile_class() == TileClass::full
                                        ? TileClass::partial
                                        : TileClass::full);
  const PlanCheck found = check(0);
  EXPECT_EQ(found.wrong, 1);
  EXPECT_EQ(found.first_wrong,
            "batch row 0, head 0, tile row 1, column 0 is partial, planned "
            "full");
  EXPECT_FALSE(found.right());
}

TEST_F(CheckPlan, FindsATileOutOfOrder) {
  std::swap(plan_.forward.entries[1], plan_.forward.entries[2]);
  EXPECT_GT(check(0).wrong, 0);
}

TEST_F(CheckPlan, FindsTransposedListsThatDiffer) {
  plan_.transposed.entries[0] = Entry::of(1, TileClass::full);
  const PlanCheck found = check(0);
  EXPECT_EQ(found.wrong, 0);
  EXPECT_FALSE(found.transposed_agrees);
  EXPECT_FALSE(found.right());
}

}  // namespace
}  // namespace tessera::plan
