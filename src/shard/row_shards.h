// shard/row_shards.h: where rows lie, apart from who needs what: several masks
// of the same rows are spread alike.
#pragma once

#include <span>
#include <vector>

#include "shard/problem.h"
#include "tessera/batch.h"

namespace tessera::shard {

// As make_shards() assigns rows of one batch, of each index of "data"; mesh and
// options are checked. Of several of the same rows, each of another mask, the
// work of all counts.
std::vector<RowShards> assign_rows(std::span<const Batch* const> batches,
                                   const Mesh& mesh,
                                   const ShardOptions& options);

// make_shards() with rows where these say, which are of a batch of the same
// sizes.
Result<Shards> make_shards_at(const Batch& batch, const Mesh& mesh,
                              const ShardOptions& options,
                              const std::vector<RowShards>& row_shards);

}  // namespace tessera::shard
