// picture/shards.h: a batch spread over a mesh, as SVG.
#pragma once

#include <string>
#include <string_view>

#include "tessera/plan.h"
#include "tessera/shard.h"

namespace tessera::picture {

// Who holds and who computes each query tile, how even work and tokens are,
// and which K/V tiles travel from whom to whom. `title` is escaped here.
std::string draw_shards(const Shards& shards, const Plan& plan,
                        std::string_view title);

}  // namespace tessera::picture
