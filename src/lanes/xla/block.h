// lanes/xla/block.h: one block of scores, for both directions: its operands,
// the scores, and products that leave out illegal pairs.
#pragma once

#include <optional>
#include <string>

#include "lanes/xla/block_loops.h"

namespace tessera::xla {

// query_rows(): the queries of a row of blocks, [K/V heads, heads of each,
// block_q, ...]. clean(): rows with 0 in place of those that are not `valid`.
Value query_rows(Writer& w, const Shape& s, const std::string& array,
                 const Unit& unit, const Value& q_begin);
Value clean(Writer& w, const Value& rows, const Value& valid, int64_t along);
// One float32 number for each head, or for each query.
Value head_numbers(Writer& w, const Shape& s, const std::string& array,
                   const Unit& unit);
Value query_numbers(Writer& w, const Shape& s, const std::string& array,
                    const Unit& unit, const Value& q_begin);
// Writes a row of blocks into an array with the program's layout.
Value write_rows(Writer& w, const Shape& s, const Value& array,
                 const Value& rows, const Unit& unit, const Value& q_begin);

// [K/V heads, block_kv, dim] of an array [batch, K/V heads, tokens, dim].
Value key_rows(Writer& w, const Shape& s, const Value& array, const Unit& unit,
               const Value& k_begin);
// Adds `more`, [K/V heads, block_kv, dim], to the same rows.
Value add_to_key_rows(Writer& w, const Shape& s, const Value& array,
                      const Value& more, const Unit& unit,
                      const Value& k_begin);

// [batch, columns]: whether a valid key of the column has a NaN or an Inf.
Value unclean_columns(Writer& w, const Shape& s, const std::string& array);
Value is_unclean(Writer& w, const Value& rows);  // of any element, a scalar

// The scores of a block and their operands.
struct Scores {
  Value legal;                 // [block_q, block_kv]
  Value all_legal;             // a scalar; false: not known
  Value keys;                  // [K/V heads, block_kv, dim]; 0 for invalid keys
  Value values;                // the same; not set for sink telemetry
  Value capped;                // [K/V heads, heads of each, block_q, block_kv]
  std::optional<Value> slope;  // of the softcap, if on and asked for
};
Scores scores_of(Writer& w, const Shape& s, const Unit& unit,
                 const Block& block, const std::optional<Value>& tile_class,
                 const Value& queries, bool with_slope);

// A [queries, keys] or [heads, queries] value, over a block of scores.
Value over_scores(Writer& w, const Value& a, const Dims& scores);

// The base that scores are relative to: their maximum, or 0 where it is -inf.
Value base_of(Writer& w, const Value& maximum);

// How a product leaves out illegal pairs. Their left factor is 0, but 0 times a
// NaN or an Inf on the right must not count either.
struct Legal {
  const Value& pairs;
  const Value& all;      // a scalar: no pair is illegal; products are plain
  const Value& unclean;  // a scalar: the right side may have a NaN or an Inf
};
// Over keys: [.., block_q, block_kv] by [K/V heads, block_kv, dim].
Value weighted_keys(Writer& w, const Value& weights, const Value& rows,
                    const Legal& legal);
// Over queries: [.., block_q, block_kv] by [.., block_q, dim] is [K/V heads,
// block_kv, dim].
Value weighted_queries(Writer& w, const Value& weights, const Value& rows,
                       const Legal& legal);

}  // namespace tessera::xla
