// lanes/xla/shard_program.h: one program for all devices of a mesh: each device
// receives the tiles it needs, computes attention, and returns the results that
// belong to other devices.
#pragma once

#include <string>
#include <vector>

#include "lanes/xla/shape.h"
#include "lanes/xla/shard_frame.h"

namespace tessera::xla {

// All that is static about the program.
struct ShardShape : ShardFrame {
  Shape local;  // of one device, after the exchange; `numbered`
};

// The arguments in the program's order, integers first.
std::vector<ShardArray> shard_arguments(const ShardShape& s);
// Forward: out, lse, tiles. Backward: dq, dk, dv, dsink_logits, tiles. The
// caller sums tiles and dsink_logits over devices.
std::vector<ShardArray> shard_results(const ShardShape& s);

std::string program_text(const ShardShape& s);

// Every argument and result under its name in the text.
std::vector<ArraySpec> shard_program_specs(const ShardShape& s);

}  // namespace tessera::xla
