// lanes/xla/shard_arrays.h: the integer arrays of each device of a mesh.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "lanes/xla/arrays.h"
#include "lanes/xla/shard_program.h"
#include "tessera/batch.h"
#include "tessera/shard.h"

namespace tessera::xla {

// The integers of each shard, by the names of shard_arguments().
Result<std::vector<Integers>> make_shard_integers(const ShardShape& s,
                                                  const Batch& batch,
                                                  const Shards& shards);

}  // namespace tessera::xla
