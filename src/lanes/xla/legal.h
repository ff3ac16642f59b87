// lanes/xla/legal.h: which pairs of a block of scores are legal, as ops.
#pragma once

#include "lanes/xla/shape.h"

namespace tessera::xla {

// Where a block of scores lies; all are scalars.
struct Block {
  Value batch, plan_head;
  Value q_begin, k_begin;
};

// [block_q]: queries that no count vetoes. [block_kv]: keys that neither a
// count nor, where every mask names ids, an id vetoes. Padding is in neither.
Value valid_queries(Writer& w, const Shape& s, const Value& batch,
                    const Value& q_begin);
Value valid_keys(Writer& w, const Shape& s, const Value& batch,
                 const Value& k_begin, int64_t keys);

// [block_q, block_kv]: the mask of the plan head, after the vetoes.
Value legal_pairs(Writer& w, const Shape& s, const Block& block);

// The same of the pairs that sink(n) in that mask would name, legal or not, for
// the n of the argument "first_keys".
Value first_keys(Writer& w, const Shape& s, const Block& block);

}  // namespace tessera::xla
