// shard/row_places.h: where rows lie, apart from who needs what: several masks
// of the same rows are spread alike.
#pragma once

#include <span>
#include <vector>

#include "shard/problem.h"
#include "tessera/batch.h"

namespace tessera::shard {

// Of each index of "data", the shard of each unit of its rows.
using RowPlaces = std::vector<Places>;

// As make_shards() places rows of one batch; mesh and options are checked. Of
// several of the same rows, each of another mask, the work of all counts.
RowPlaces place_rows(std::span<const Batch* const> batches, const Mesh& mesh,
                     const ShardOptions& options);

// make_shards() with rows at these places, those of a batch of the same sizes.
Result<Shards> make_shards_at(const Batch& batch, const Mesh& mesh,
                              const ShardOptions& options,
                              const RowPlaces& places);

}  // namespace tessera::shard
