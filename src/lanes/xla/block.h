// lanes/xla/block.h: one block of scores, for both directions: its operands,
// the scores, and products in which what is illegal has no part.
#pragma once

#include <optional>
#include <string>

#include "lanes/xla/block_loops.h"

namespace tessera::xla {

// Queries of a row of blocks, [K/V heads, heads of each, block_q, ...]; those
// of no query that counts are 0 where `valid` is given.
Value query_rows(Writer& w, const Shape& s, const std::string& array,
                 const Unit& unit, const Value& q_begin);
Value clean(Writer& w, const Value& rows, const Value& valid, int64_t along);
// One number a head, or one a query, in float32.
Value head_numbers(Writer& w, const Shape& s, const std::string& array,
                   const Unit& unit);
Value query_numbers(Writer& w, const Shape& s, const std::string& array,
                    const Unit& unit, const Value& q_begin);
// The other way: a row of blocks into an array like the program's.
Value write_rows(Writer& w, const Shape& s, const Value& array,
                 const Value& rows, const Unit& unit, const Value& q_begin);

// [K/V heads, block_kv, dim] of an array [batch, K/V heads, tokens, dim].
Value key_rows(Writer& w, const Shape& s, const Value& array, const Unit& unit,
               const Value& k_begin);
// Adds to such rows.
Value add_to_key_rows(Writer& w, const Shape& s, const Value& array,
                      const Value& more, const Unit& unit,
                      const Value& k_begin);

// [batch, columns]: a key that counts holds a NaN or an Inf.
Value unclean_columns(Writer& w, const Shape& s, const std::string& array);
Value is_unclean(Writer& w, const Value& rows);  // any element, a scalar

// What every body of a block begins with.
struct Scores {
  Value legal;      // [block_q, block_kv]
  Value all_legal;  // a scalar; false where nobody says
  Value keys;    // [K/V heads, block_kv, dim], clean of keys that do not count
  Value values;  // the same; none where telemetry has none
  Value capped;  // [K/V heads, heads of each, block_q, block_kv]
  std::optional<Value> slope;  // of the cap, where it is on and asked for
};
Scores scores_of(Writer& w, const Shape& s, const Unit& unit,
                 const Block& block, const std::optional<Value>& tile_class,
                 const Value& queries, bool with_slope);

// A [queries, keys] or [heads, queries] value, over a block of scores.
Value over_scores(Writer& w, const Value& a, const Dims& scores);

// What scores are taken relative to: their maximum, but 0 for -inf.
Value base_of(Writer& w, const Value& maximum);

// What a product does with illegal pairs: their factor on the left is 0, and on
// the right a NaN or an Inf of theirs must not count.
struct Legal {
  const Value& pairs;
  const Value& all;      // a scalar: no pair is illegal, so products are plain
  const Value& unclean;  // a scalar: such a number may be there
};
// Over keys: [.., block_q, block_kv] by [K/V heads, block_kv, dim].
Value weighted_keys(Writer& w, const Value& weights, const Value& rows,
                    const Legal& legal);
// Over queries: [.., block_q, block_kv] by [.., block_q, dim] is [K/V heads,
// block_kv, dim].
Value weighted_queries(Writer& w, const Value& weights, const Value& rows,
                       const Legal& legal);

}  // namespace tessera::xla
