// shard/plan_heads.h: each device's plan heads under one program for all.
#pragma once

#include <cstdint>
#include <string_view>

#include "tessera/result.h"
#include "tessera/shard.h"

namespace tessera::shard {

// The number of plan heads of every device. Each plan head serves the same
// number of the device's query heads; the last ones may be padding. An error if
// devices would divide their heads in different ways.
Result<int64_t> plan_heads_of_device(std::string_view where,
                                     const Shards& shards);

}  // namespace tessera::shard
