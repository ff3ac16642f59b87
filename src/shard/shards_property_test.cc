// shard/shards_property_test.cc: random batches on random meshes, checked pair
// by pair and in fp64.
#include <gtest/gtest.h>

#include "tests/hold_for_all.h"
#include "tests/sharded_run.h"

namespace tessera::testing {
namespace {

bool same(const Shards& a, const Shards& b) {
  if (a.shards.size() != b.shards.size()) return false;
  for (size_t i = 0; i < a.shards.size(); ++i) {
    const Shard& x = a.shards[i];
    const Shard& y = b.shards[i];
    if (x.rows != y.rows || x.columns != y.columns || x.forward != y.forward ||
        x.transposed != y.transposed) {
      return false;
    }
  }
  return a.kv.send == b.kv.send && a.q.send == b.q.send &&
         a.contract_key == b.contract_key;
}

// Shapes are the same for all shards and match their contents.
Fault shapes_fault(const Shards& shards) {
  const ShardShapes& shapes = shards.shapes;
  for (const Shard& s : shards.shards) {
    if (static_cast<int64_t>(s.rows.size()) != shapes.rows ||
        static_cast<int64_t>(s.columns.size()) != shapes.columns ||
        s.forward.lists != shards.shards[0].forward.lists) {
      return "shards differ in shape";
    }
    if (s.steps > shapes.steps || s.steps_transposed > shapes.steps) {
      return "a shard has more steps than there is room for";
    }
    if (transpose(s.forward) != s.transposed) return "not its transpose";
    if (s.own_rows > shapes.own_rows || s.own_columns > shapes.own_columns) {
      return "a shard owns more than there is room for";
    }
  }
  return {};
}

// Step counts match the packed steps.
Fault steps_fault(const Batch& batch, const Shards& shards) {
  for (size_t i = 0; i < shards.shards.size(); ++i) {
    const Shard& s = shards.shards[i];
    for (const bool transposed : {false, true}) {
      auto steps =
          pack_shard(batch, shards, static_cast<int64_t>(i), transposed);
      if (!steps) return steps.error().message;
      const auto n = static_cast<int64_t>(steps->steps.size());
      if (n != (transposed ? s.steps_transposed : s.steps)) {
        return "a step count is " + std::to_string(n);
      }
    }
  }
  return {};
}

Fault shards_fault(const RandomCase& plan) {
  const ShardedCase c = random_sharded(plan);
  auto request = plan.request();
  if (!request) return request.error().message;
  auto batch = BorrowedBatch::make(*request, plan.facts());
  if (!batch) return batch.error().message;
  auto shards = make_shards(*batch, c.mesh, c.options);
  auto again = make_shards(*batch, c.mesh, c.options);
  if (!shards || !again) return describe(c) + ": " + shards.error().message;
  if (!same(*shards, *again)) return describe(c) + ": other bits again";
  if (shards->report.least_needed > shards->report.forward.needed) {
    return describe(c) + ": less is needed than no way avoids";
  }
  for (Fault fault :
       {shapes_fault(*shards), steps_fault(*batch, *shards),
        pairs_fault(c, *batch, *shards), run_fault(c, *batch, *shards)}) {
    if (fault) return describe(c) + ": " + *fault;
  }
  return {};
}

TEST(ShardsProperty, JoinedShardsAreTheSingleDevice) {
  hold_for_all(shards_fault, 1500);
}

}  // namespace
}  // namespace tessera::testing
