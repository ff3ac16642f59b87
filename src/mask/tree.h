// mask/tree.h: the prefix tree of one batch row, as runs of tokens whose
// subtrees end together.
#pragma once

#include <cstdint>
#include <vector>

#include "mask/runs.h"
#include "tessera/result.h"

namespace tessera::mask {

// Run r covers the tokens [start[r], start[r + 1]). Each token is the only
// child of the previous one, and all their subtrees end before token end[r]. So
// the path from the root to a token below the run contains the whole run.
struct Tree {
  std::vector<int32_t> start;   // one more entry than runs
  std::vector<int32_t> end;     // subtree of a token t: [t, end)
  std::vector<int32_t> parent;  // run of the parent token; -1: root
  // The first run of the chain of adjacent runs, each the parent of the next,
  // that ends with this run.
  std::vector<int32_t> head;

  int64_t count() const { return static_cast<int64_t>(end.size()); }
};

// Reads the first n tokens of batch row `batch_row` and reuses the memory of
// `tree`. An error unless `enter` rises, each subtree [enter, leave) holds its
// token and all subtrees are nested.
Result<void> read_tree(const int32_t* enter, const int32_t* leave, int64_t n,
                       int64_t batch_row, Tree& tree);

// Appends the tokens from the root to the end of run r, as ascending intervals,
// without the tokens up to the end of run `above`, which is on that path; -1:
// from the root.
void append_path(const Tree& tree, int64_t r, int64_t above,
                 std::vector<Interval>& out);

// The token at which the subtree of token t ends; 0 without such a token.
int32_t end_of_subtree(const Tree& tree, int64_t t);

}  // namespace tessera::mask
