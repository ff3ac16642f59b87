// lanes/xla/shape.h: all that is static about an attention program, and the
// arrays that the program reads and returns.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "lanes/xla/lane.h"
#include "lanes/xla/writer.h"
#include "tessera/mask.h"
#include "tessera/plan.h"

namespace tessera::xla {

// Lengths are in whole tiles.
struct Shape {
  XlaMethod method = XlaMethod::worklist;
  bool backward = false;
  // The program computes sink telemetry: it has no values and no output.
  bool sinks = false;

  int64_t batch = 1, q_len = 0, kv_len = 0;
  int64_t heads = 1, kv_heads = 1, plan_heads = 1;
  int64_t head_dim = 0, v_head_dim = 0;
  Tile tile;
  Tile logical_block;  // the request's; may need a lowering reason
  int64_t steps = 0;   // capacity of the worklist

  Element element = Element::f32;
  double scale = 1, softcap = 0;
  bool sink_logits = false;
  bool dlse = false;

  std::vector<Mask> masks;  // one for each equal group of plan heads
  int64_t window_bounds = 0;
  int64_t pick_heads = 0, picks_k = 0;  // 0: no picks

  // Tiles are not in the order of their tokens, so token numbers are read from
  // arrays, in place of `rows`. The batch is one row.
  bool numbered = false;
  // The mask of each plan head is read from an array, since each device of a
  // mesh has other plan heads.
  bool numbered_masks = false;

  // The units of a batch row, which the program loops over: query heads of one
  // plan head, with whole K/V heads or a part of one.
  int64_t units() const;
  int64_t unit_heads() const { return heads / units(); }
  int64_t unit_kv_heads() const;
  int64_t unit_group() const { return unit_heads() / unit_kv_heads(); }

  // The queries and keys of one block of scores.
  int64_t block_q() const {
    return method == XlaMethod::worklist ? tile.q : q_len;
  }
  int64_t block_kv() const {
    return method == XlaMethod::dense ? kv_len : tile.kv;
  }
  int64_t columns() const { return kv_len / block_kv(); }

  bool names_documents() const;
  bool names_segments() const;
  bool all_name_ids() const;  // every mask vetoes negative ids
  // Whether a mask needs the rank of keys in their document, or segment.
  bool ranks_documents() const;
  bool ranks_segments() const;
  bool names_prefix() const;
  bool names_tree() const;
  bool names_same(int64_t name) const;
};

// kNoPosition in q_positions: a query that is padding or past the count.
// kNoKey in k_numbers: such a key.
inline constexpr int32_t kNoPosition = std::numeric_limits<int32_t>::min();
inline constexpr int32_t kNoKey = -1;

// q_same_a and k_same_a: a token of no group is -2 among queries and -1 among
// keys, so that equal numbers mean one group.

// k_tree_ends has the token at which the subtree of each key ends.

// The columns of the array `rows`, which has a line for each batch row.
enum class RowFact : uint8_t { q_offset, prefix, valid, q_end };
inline constexpr int64_t kRowFacts = 4;

// The arguments in the program's order: the integers that are needed (rows,
// bounds, steps and range, ids, ranks, picks), then the arrays of the call.
std::vector<Argument> arguments_of(const Shape& s);

std::string forward_program(const Shape& s);  // out, lse, tiles
std::string sinks_program(const Shape& s);    // mass, entropy, live, tiles
std::string backward_program(
    const Shape& s);  // dq, dk, dv, dsink_logits, tiles
// Write the ops over the writer's arguments and return the same results, with
// dk and dv as sums in float32.
Writer::Values write_forward(Writer& w, const Shape& s);
Writer::Values write_backward(Writer& w, const Shape& s);

}  // namespace tessera::xla
