// lanes/xla/shard_program.h: one program for all devices of a mesh: what each
// needs travels to it, it attends, and what it did for others goes home.
#pragma once

#include <string>
#include <vector>

#include "lanes/xla/shape.h"
#include "lanes/xla/shard_frame.h"

namespace tessera::xla {

// All that is static about it.
struct ShardShape : ShardFrame {
  Shape local;  // of a device, after the exchange; `numbered`
};

// In the program's order, integers first.
std::vector<ShardArray> shard_arguments(const ShardShape& s);
// Forward: out, lse, tiles. Backward: dq, dk, dv, dsink_logits, tiles. Sums
// over devices are left to the caller: tiles and dsink_logits.
std::vector<ShardArray> shard_results(const ShardShape& s);

std::string program_text(const ShardShape& s);

// Every argument and result as the text has it.
std::vector<ArraySpec> shard_program_specs(const ShardShape& s);

}  // namespace tessera::xla
