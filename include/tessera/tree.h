// tessera/tree.h: sequences that share prefixes, as one row of tokens in which
// each prefix stands once.
//
//   auto tree = pack_tree({{a, b, c}, {a, b, d}});  // a b c d: 2 tokens saved
//   facts.tree_enter = tree->enter;                 // for the mask `tree`
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/facts.h"
#include "tessera/result.h"

namespace tessera {

// Its tokens are in depth-first order; children come in the order in which the
// sequences first have them.
struct PackedTree {
  std::vector<int32_t> tokens;
  std::vector<int32_t> enter;  // the token's own number
  std::vector<int32_t> leave;  // one past the last token below it
  std::vector<int32_t> depth;  // tokens before it on its way: its position
  // Sequence s is the tokens path[path_start[s]] to path[path_start[s + 1]].
  std::vector<int64_t> path_start;
  std::vector<int32_t> path;

  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
  int64_t sequences() const {
    return static_cast<int64_t>(path_start.size()) - 1;
  }
  int64_t tokens_saved() const {
    return static_cast<int64_t>(path.size()) - size();
  }
};

// Equal prefixes share their tokens, whatever the order of the sequences.
Result<PackedTree> pack_tree(std::span<const Ints> sequences);

}  // namespace tessera
