// lanes/xla/legal.h: which pairs of a block of scores are legal, as ops.
#pragma once

#include "lanes/xla/shape.h"

namespace tessera::xla {

// The place of a block of scores, as scalars.
struct Block {
  Value batch, plan_head;
  Value q_begin, k_begin;
};

// valid_queries(), [block_q]: queries within the count. valid_keys(), [keys]:
// keys within the count and, if every mask names ids, with an id that is not
// negative. Padding is not valid.
Value valid_queries(Writer& w, const Shape& s, const Value& batch,
                    const Value& q_begin);
Value valid_keys(Writer& w, const Shape& s, const Value& batch,
                 const Value& k_begin, int64_t keys);

// [block_q, block_kv]: the mask of the plan head, and both valid.
Value legal_pairs(Writer& w, const Shape& s, const Block& block);

// [block_q, block_kv]: the pairs that sink(n) in that mask would name, legal or
// not, with n from the argument "first_keys".
Value first_keys(Writer& w, const Shape& s, const Block& block);

}  // namespace tessera::xla
