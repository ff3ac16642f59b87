// lanes/xla/shard_arrays.h: what each device of a mesh is handed, and what all
// of them give, one array.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "lanes/xla/arrays.h"
#include "lanes/xla/shard_program.h"
#include "tessera/batch.h"
#include "tessera/shard.h"

namespace tessera::xla {

// Of each shard, by the names of shard_arguments().
Result<std::vector<Integers>> make_shard_integers(const ShardShape& s,
                                                  const Batch& batch,
                                                  const Shards& shards);

}  // namespace tessera::xla
