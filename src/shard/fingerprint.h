// shard/fingerprint.h: one digest of how arrays lie on a mesh, whether we
// planned them or read them from a program.
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

// 32 hex digits. `mesh` is its text.
std::string fingerprint_of(const std::string& mesh,
                           std::span<const PlacedArray> arrays);

}  // namespace tessera::shard
