// request/trees.h: prefix trees from a file, sequences or a random draw.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/facts.h"
#include "tessera/plan.h"
#include "tessera/result.h"

namespace tessera::request {

// The prefix tree of the documents in a file of JSON lines with `input_ids`.
Result<PackedTree> pack_tree_file(const std::string& path);

// `random:run=64,seed=0` draws batch row b with seed + b. FILE is .safetensors
// with I32 tensors enter and leave, [n] for every batch row or [batch, n], or
// JSON lines, whose tree serves every batch row. Tokens after a file's n are
// padding; if no valid counts are given, they are set to n.
Result<void> read_tree_fact(const std::string& source, const Request& request,
                            OwnedFacts& facts);

}  // namespace tessera::request
