// fit/mesh_arrays.h: how the arrays of a mesh's program lie on the mesh.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/fit.h"
#include "tessera/shard.h"

namespace tessera::fit {

struct MeshArrays {
  ShardProgramArrays arrays;
  std::string fingerprint;  // as the receipt of a run has it
  int64_t query_chunk = 0;  // of lane mosaic; 0: queries are not in chunks
};
Result<MeshArrays> mesh_arrays(const MeshFitCall& asked, const Shards& shards,
                               bool backward);

}  // namespace tessera::fit
