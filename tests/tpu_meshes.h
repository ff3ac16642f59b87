// tests/tpu_meshes.h: meshes of TPUs that sharded programs are compiled for.
#pragma once

#include "tessera/shard.h"

namespace tessera::testing {

struct TpuMesh {
  const char* target;
  const char* mesh;
  TileExchange exchange = TileExchange::rounds;
};

inline constexpr TpuMesh kTpuMeshes[] = {
    {"v6e:2x2", "seq=4"},
    {"v6e:2x2", "seq=4", TileExchange::ragged},
    {"v6e:2x2", "seq=4", TileExchange::gather},
    {"v6e:4x4", "data=2,head=2,seq=4"},
    {"v6e:4x4", "data=2,head=2,seq=4", TileExchange::ragged},
    {"v6e:16x16", "data=16,seq=16"},
    {"v5p:2x2x1", "seq=4"},
    {"v5p:2x2x1", "seq=4", TileExchange::ragged},
    {"tpu7x:2x2x1", "seq=8"},
    {"tpu7x:2x2x1", "seq=8", TileExchange::ragged}};

}  // namespace tessera::testing
