// tests/tpu_meshes.h: meshes of TPUs that sharded programs are compiled for.
#pragma once

#include <cstddef>
#include <iterator>
#include <vector>

#include "tessera/shard.h"
#include "tests/random_case.h"

namespace tessera::testing {

struct TpuMesh {
  const char* target;
  const char* mesh;
  TileExchange exchange = TileExchange::rounds;
};

// Every run compiles for these: 4, 16 and 256 chips.
inline constexpr TpuMesh kTpuMeshes[] = {{"v6e:2x2", "seq=4"},
                                         {"v6e:4x4", "data=2,head=2,seq=4"},
                                         {"v6e:16x16", "data=16,seq=16"}};
// A run of a share of cases takes some of these.
inline constexpr TpuMesh kOtherTpuMeshes[] = {
    {"v6e:2x2", "seq=4", TileExchange::ragged},
    {"v6e:2x2", "seq=4", TileExchange::gather},
    {"v6e:4x4", "data=2,head=2,seq=4", TileExchange::ragged},
    {"v5p:2x2x1", "seq=4"},
    {"v5p:2x2x1", "seq=4", TileExchange::ragged},
    {"tpu7x:2x2x1", "seq=8"},
    {"tpu7x:2x2x1", "seq=8", TileExchange::ragged}};

// The meshes that this run compiles for.
inline std::vector<TpuMesh> tpu_meshes() {
  std::vector<TpuMesh> out(std::begin(kTpuMeshes), std::end(kTpuMeshes));
  for (size_t i = first_case(std::size(kOtherTpuMeshes));
       i < std::size(kOtherTpuMeshes); i += case_stride()) {
    out.push_back(kOtherTpuMeshes[i]);
  }
  return out;
}

}  // namespace tessera::testing
