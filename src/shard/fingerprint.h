// shard/fingerprint.h: one digest of the layout of arrays on a mesh, the same
// for planned arrays and for those read from a program.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "tessera/shard.h"

namespace tessera::shard {

struct PlacedArray {
  std::string name;
  std::string dtype;  // "bf16"
  std::vector<int64_t> shape;
  std::string sharding;  // `[{"data"}, {}]`
};
PlacedArray placed(const ArraySpec& spec);

// 32 hex digits. `mesh` is the text of the mesh.
std::string fingerprint_of(const std::string& mesh,
                           std::span<const PlacedArray> arrays);

}  // namespace tessera::shard
