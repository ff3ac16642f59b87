// request/trees.h: prefix trees from a file, sequences or a random draw.
#pragma once

#include <cstdint>
#include <string>

#include "tessera/facts.h"
#include "tessera/plan.h"
#include "tessera/result.h"

namespace tessera::request {

// The tree of the documents of a file of JSON lines, each `input_ids`.
Result<PackedTree> pack_tree_file(const std::string& path);

// `random:run=64,seed=0` draws batch row b with seed + b. FILE is .safetensors
// with I32 tensors enter and leave, [n] for every batch row or [batch, n], or
// JSON lines, whose tree serves every batch row. Tokens behind the n of a file
// are padding: valid counts, if none are given, become n.
Result<void> read_tree_fact(const std::string& source, const Request& request,
                            OwnedFacts& facts);

}  // namespace tessera::request
