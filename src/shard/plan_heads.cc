// shard/plan_heads.cc: whole plan heads on each device, or each device in one.
#include "shard/plan_heads.h"

#include "base/fail.h"

namespace tessera::shard {

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
                       "{} for {}",
                       s.first_head, s.first_head + s.heads - 1, s.first_list,
                       s.first_list + s.lists - 1, to_string(shards.mesh));
  }
  return lists;
}

}  // namespace tessera::shard
