// audit/program.h: a text's operations, its meshes and its number of devices.
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
  std::vector<std::string> mesh_names;  // names with their @, in text order
  int64_t devices = 1;                  // partitions times replicas
};

// Refuses any function, mesh or Shardy operation that it cannot read, anywhere
// in the text, so that an audit never guesses.
Result<Program> read_program(std::string_view text);

// The attribute that `#name` stands for.
uint32_t resolve(const Module& m, uint32_t at);

}  // namespace tessera::audit
