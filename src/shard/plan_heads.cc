// shard/plan_heads.cc: checks that each device has whole plan heads, or heads
// within one plan head.
#include "shard/plan_heads.h"

#include <algorithm>
#include <numeric>

#include "base/fail.h"

namespace tessera::shard {
namespace {

// The number of masks at which every device has whole plan heads.
int64_t masks_needed(const Shards& shards) {
  int64_t heads = 0, plan_heads = 0, common = 0;
  for (const Shard& s : shards.shards) {
    if (s.heads == 0) continue;
    heads = std::max(heads, s.first_head + s.heads);
    plan_heads = std::max(plan_heads, s.first_list + s.lists);
    common = std::gcd(common, std::gcd(s.first_head, s.heads));
  }
  return heads / std::gcd(heads / plan_heads, common);
}

}  // namespace

Result<int64_t> plan_heads_of_device(std::string_view where,
                                     const Shards& shards) {
  const int64_t lists = shards.shards.front().forward.lists;
  if (lists == 1) return lists;
  const int64_t heads = shards.shapes.heads;
  for (const Shard& s : shards.shards) {
    if (s.heads == 0) continue;
    if (s.first_head * lists == s.first_list * heads &&
        s.heads * lists == s.lists * heads) {
      continue;
    }
    return unavailable(where,
                       "heads of a device must be those of whole plan heads or "
                       "lie in one, found heads {} to {} in plan heads {} to "
                       "{} for {} (repeat the masks until they are {}, for "
                       "fewer heads each)",
                       s.first_head, s.first_head + s.heads - 1, s.first_list,
                       s.first_list + s.lists - 1, to_string(shards.mesh),
                       masks_needed(shards));
  }
  return lists;
}

}  // namespace tessera::shard
