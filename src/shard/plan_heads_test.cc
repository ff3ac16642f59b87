// shard/plan_heads_test.cc: on every device, the plan head that a program takes
// for a query head is the right one.
#include "shard/plan_heads.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/hold_for_all.h"
#include "tests/sharded_run.h"

namespace tessera::testing {
namespace {

Fault plan_heads_fault(const RandomCase& plan) {
  const ShardedCase c = random_sharded(plan);
  auto request = plan.request();
  if (!request) return request.error().message;
  auto batch = BorrowedBatch::make(*request, plan.facts());
  if (!batch) return batch.error().message;
  auto shards = make_shards(*batch, c.mesh, c.options);
  if (!shards) return describe(c) + ": " + shards.error().message;
  const int64_t group = c.options.shape.heads / batch->plan().heads;
  bool whole = true, in_one = true;
  for (const Shard& s : shards->shards) {
    if (s.heads == 0) continue;
    whole &= s.first_head % group == 0 && s.heads % group == 0;
    in_one &= s.first_head / group == (s.first_head + s.heads - 1) / group;
  }
  const auto plan_heads = shard::plan_heads_of_device("test", *shards);
  if (plan_heads.ok() != (whole || in_one)) {
    return describe(c) + ": " +
           (plan_heads ? "it is let through" : plan_heads.error().message);
  }
  if (!plan_heads) return {};
  if (shards->shapes.heads % *plan_heads != 0) {
    return describe(c) + ": heads of a plan head differ";
  }
  const int64_t of_each = shards->shapes.heads / *plan_heads;
  for (const Shard& s : shards->shards) {
    for (int64_t h = 0; h < s.heads; ++h) {
      if (s.first_list + h / of_each == (s.first_head + h) / group) continue;
      return describe(c) + ": head " + std::to_string(h) + " of head " +
             std::to_string(s.head) + " has another plan head";
    }
  }
  return {};
}

TEST(PlanHeads, AreThoseOfTheirHeadsOnEveryDevice) {
  hold_for_all(plan_heads_fault, 1500);
}

Result<Shards> shards_of(size_t masks, const AttentionShape& shape,
                         const char* mesh, bool uneven) {
  Request request;
  request.masks.assign(masks, *parse_mask("causal"));
  request.q_len = request.kv_len = 256;
  const auto batch = OwnedBatch::make(request, {});
  if (!batch) return batch.error();
  ShardOptions options;
  options.shape = shape;
  options.uneven = uneven;
  return make_shards(*batch, *parse_mesh(mesh), options);
}

TEST(PlanHeads, OfADeviceAreWholeOrOne) {
  struct Case {
    size_t masks;
    int64_t heads, kv_heads;
    const char* mesh;
    int64_t due;
    bool uneven = false;
  };
  for (const Case& c : std::initializer_list<Case>{
           {1, 8, 4, "head=4", 1},
           {4, 8, 4, "head=2,seq=2", 2},
           {4, 8, 4, "head=4", 1},
           {2, 8, 4, "head=4", 1},  // half of a plan head's group
           {4, 8, 4, "seq=4", 4},
           {3, 6, 3, "head=2", 2, true},
           {2, 2, 1, "head=2", 2, true},  // one device has no head
       }) {
    const auto shards = shards_of(c.masks, {c.heads, c.kv_heads, 64, 64, {}, 0},
                                  c.mesh, c.uneven);
    ASSERT_TRUE(shards) << shards.error().message;
    const auto found = shard::plan_heads_of_device("test", *shards);
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ(*found, c.due) << c.masks << " masks, " << c.mesh;
  }
}

TEST(PlanHeads, ThatADeviceWouldHaveHalfAreRefused) {
  const auto shards =
      shards_of(3, {6, 2, 64, 64, {}, 0}, "head=2,seq=2", false);
  ASSERT_TRUE(shards) << shards.error().message;
  EXPECT_EQ(shard::plan_heads_of_device("test", *shards).error().message,
            "[test] heads of a device must be those of whole plan heads or lie "
            "in one, found heads 3 to 5 in plan heads 1 to 2 for head=2,seq=2 "
            "(repeat the masks until they are 6, for fewer heads each)");
}

// With fewer repeats some device has part of a plan head.
TEST(PlanHeads, AreWholeWhereMasksAreAsManyAsTheErrorSays) {
  struct Case {
    size_t masks;
    int64_t heads, kv_heads;
    const char* mesh;
    size_t times;
    bool uneven = false;
  };
  for (const Case& c : std::initializer_list<Case>{
           {3, 6, 2, "head=2", 2},
           {3, 12, 2, "head=2", 2},  // plan heads of 4 heads, 6 heads a device
           {4, 24, 3, "head=3", 3},
           {2, 18, 6, "head=3", 3},
           {3, 12, 3, "head=2", 1, true},
           {3, 12, 6, "head=4", 2, true},
           {4, 12, 6, "head=3,seq=2", 3},
           {2, 10, 5, "head=3", 5, true}}) {
    const AttentionShape shape = {c.heads, c.kv_heads, 64, 64, {}, 0};
    for (size_t times = 1; times <= c.times; ++times) {
      if (c.heads % static_cast<int64_t>(c.masks * times) != 0) continue;
      const auto shards = shards_of(c.masks * times, shape, c.mesh, c.uneven);
      ASSERT_TRUE(shards) << shards.error().message;
      const auto found = shard::plan_heads_of_device("test", *shards);
      EXPECT_EQ(found.ok(), times == c.times) << c.masks << " " << c.mesh;
      if (found || times > 1) continue;
      EXPECT_NE(
          found.error().message.find("(repeat the masks until they are " +
                                     std::to_string(c.masks * c.times) + ", "),
          std::string::npos)
          << found.error().message;
    }
  }
}

}  // namespace
}  // namespace tessera::testing
