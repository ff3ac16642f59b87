// picture/shards.h: the distribution of a batch over a mesh, as SVG.
#pragma once

#include <string>
#include <string_view>

#include "tessera/batch.h"
#include "tessera/shard.h"

namespace tessera::picture {

// Draws which device holds and which computes each query tile, how even work
// and tokens are, and which K/V tiles travel between which devices. `title` is
// escaped here. The shards are those of `batch`.
std::string draw_shards(const Batch& batch, const Shards& shards,
                        std::string_view title);

}  // namespace tessera::picture
