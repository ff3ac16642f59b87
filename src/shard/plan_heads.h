// shard/plan_heads.h: which plan heads a device has, where one program serves
// all devices.
#pragma once

#include <cstdint>
#include <string_view>

#include "tessera/result.h"
#include "tessera/shard.h"

namespace tessera::shard {

// Of every device, each for as many of its query heads; of the last some may be
// padding. An error where devices would share them out in different ways.
Result<int64_t> plan_heads_of_device(std::string_view where,
                                     const Shards& shards);

}  // namespace tessera::shard
