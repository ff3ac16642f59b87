// mask/tree.h: the prefix tree of one batch row, as runs of tokens whose
// subtrees end together.
#pragma once

#include <cstdint>
#include <vector>

#include "mask/runs.h"
#include "tessera/result.h"

namespace tessera::mask {

// Run r covers the tokens [start[r], start[r + 1]): each is the only child of
// the one before it, and all their subtrees end before token end[r]. So a run
// is wholly on the way from the root to any token below it.
struct Tree {
  std::vector<int32_t> start;   // one more entry than runs
  std::vector<int32_t> end;     // a token; the subtree is [its token, end)
  std::vector<int32_t> parent;  // whose last token is the parent; -1: a root
  // The first of the runs that lead to this one with no token between them.
  std::vector<int32_t> head;

  int64_t count() const { return static_cast<int64_t>(end.size()); }
};

// The first n tokens of batch row `batch_row`, into memory that is reused. An
// error unless `enter` rises, each subtree [enter, leave) holds its token and
// all are nested.
Result<void> read_tree(const int32_t* enter, const int32_t* leave, int64_t n,
                       int64_t batch_row, Tree& tree);

// The tokens from the root to the end of run r, as ascending intervals, but
// without those up to the end of run `above`, one on the way; -1: with all.
void append_path(const Tree& tree, int64_t r, int64_t above,
                 std::vector<Interval>& out);

// The token at which the subtree of token t ends; 0 for one that the tree has
// not.
int32_t end_of_subtree(const Tree& tree, int64_t t);

}  // namespace tessera::mask
