// tessera/topk.h: picks in the layout of index-sparse attention on GPUs: for
// each query the numbers of the key blocks that it attends to, groups of heads
// behind the queries. The mask's blocks(n) says of how many keys a block is: 1
// for picks of single tokens.
//
//   auto picks = picks_from_topk(topk_idxs, {{q_len, groups, k}}, request);
//   facts.picks = picks->view();
//   auto back = make_topk(batch);  // the same numbers at the same places
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tessera/batch.h"
#include "tessera/facts.h"
#include "tessera/plan.h"
#include "tessera/result.h"

namespace tessera {

struct TopkPicks {
  std::vector<int32_t> blocks;  // [batch, heads, q_len, k]
  int64_t heads = 1;
  int64_t k = 0;

  Picks view() const { return {blocks, heads, k}; }
};

// `topk_idxs` is [queries, k], [queries, groups, k], where queries are those of
// all batch rows, one row after another, or [batch, q_len, groups, k]; in C
// order. Numbers count from their batch row's first key, in any order; -1 is an
// unused slot and may stand anywhere. Outside the keys, or twice for a query,
// they are refused: one stack skips them, the next counts a key twice.
Result<TopkPicks> picks_from_topk(Ints topk_idxs,
                                  std::span<const int64_t> shape,
                                  const Request& request);

struct TopkIdxs {
  std::vector<int64_t> shape;  // [batch * q_len, groups, k], no groups where 1
  std::vector<int32_t> values;
};

// The picks that a batch attends with. Those of a router, of a plan file too,
// ascend with -1 at the end.
Result<TopkIdxs> make_topk(const Batch& batch);

// Keys that a forward pass reads, K and V together counted once, summed over
// the lists of a plan.
struct KeyReads {
  int64_t by_query = 0;  // legal pairs: each query reads its own keys
  int64_t needed = 0;    // keys that some query of a tile row sees
  int64_t read = 0;      // keys of the tiles of a tile row

  int64_t extra() const { return read - needed; }
  bool operator==(const KeyReads&) const = default;
};
Result<KeyReads> count_key_reads(const Batch& batch);

}  // namespace tessera
