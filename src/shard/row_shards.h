// shard/row_shards.h: assigns rows to shards apart from make_shards, so that
// several masks of the same rows share one assignment.
#pragma once

#include <span>
#include <vector>

#include "shard/problem.h"
#include "tessera/batch.h"

namespace tessera::shard {

// Assigns rows as make_shards() does, for each index of "data". The caller has
// checked mesh and options. If several batches have the same rows with
// different masks, their work adds up.
std::vector<RowShards> assign_rows(std::span<const Batch* const> batches,
                                   const Mesh& mesh,
                                   const ShardOptions& options);

// make_shards() with the given assignment of rows, which must be that of a
// batch of the same sizes.
Result<Shards> make_shards_at(const Batch& batch, const Mesh& mesh,
                              const ShardOptions& options,
                              const std::vector<RowShards>& row_shards);

}  // namespace tessera::shard
