// shard/check.h: checks of meshes, options and batches before any work.
#pragma once

#include "tessera/shard.h"

namespace tessera::shard {

Result<void> check_mesh(const Mesh& mesh);
Result<void> check_options(const ShardOptions& options);
Result<void> check_fit(const Batch& batch, const Mesh& mesh,
                       const ShardOptions& options);

}  // namespace tessera::shard
