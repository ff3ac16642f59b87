// lanes/xla/shard_program.h: one program for all devices of a mesh: what each
// needs travels to it, it attends, and what it did for others goes home.
#pragma once

#include <string>
#include <vector>

#include "lanes/xla/exchange.h"
#include "lanes/xla/shape.h"

namespace tessera::xla {

// All that is static about it.
struct ShardShape {
  Shape local;  // of a device, after the exchange; `numbered`
  Mesh mesh;
  Exchange rows, columns;  // query tiles, key tiles
};

// In the program's order: a device's part of each array, and the axes that
// split it. Integers come first; of them each device has its own, so that they
// begin with dimensions of 1 for "data", "head" and "seq".
struct ShardArray {
  Argument part;
  std::vector<std::string> axes;
  bool is_own = false;  // an integer array of each device
};
std::vector<ShardArray> shard_arguments(const ShardShape& s);
// Forward: out, lse, tiles. Backward: dq, dk, dv, dsink_logits, tiles. Sums
// over devices are left to the caller: tiles and dsink_logits.
std::vector<ShardArray> shard_results(const ShardShape& s);

std::string shard_program_text(const ShardShape& s);

// Every argument and result as the text has it: "all_q", "result 0"; the whole
// array, and the axes that split it.
std::vector<ArraySpec> shard_program_specs(const ShardShape& s);

}  // namespace tessera::xla
