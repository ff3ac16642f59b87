// audit/program.h: a text's operations, its meshes and how many devices it is
// for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "audit/ops.h"
#include "audit/place.h"

namespace tessera::audit {

inline constexpr int64_t kMaxDevices = int64_t{1} << 20;

struct Program {
  Module m;
  Meshes meshes;
  std::vector<std::string> mesh_names;  // in the text's order, with their @
  int64_t devices = 1;                  // partitions times replicas
};

// Refuses what an audit would have to guess at: a function, a mesh or an
// operation of Shardy that it cannot read, wherever it stands.
Result<Program> read_program(std::string_view text);

// The attribute itself where `#name` stands for it.
uint32_t resolve(const Module& m, uint32_t at);

}  // namespace tessera::audit
