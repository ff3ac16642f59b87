// lanes/xla/shard_shape.h: what is static about the program of a batch's
// shards.
#pragma once

#include "lanes/xla/shard_program.h"
#include "tessera/attention.h"
#include "tessera/batch.h"
#include "tessera/shard.h"

namespace tessera::xla {

// An error where devices would differ in more than their arrays.
Result<ShardShape> shard_shape(const Batch& batch, const Shards& shards,
                               const AttentionCall& call, bool backward);

}  // namespace tessera::xla
