// lanes/xla/shape.h: all that is static about an attention program, and the
// arrays that it reads and gives.
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
  // Sink telemetry in place of the forward pass: no values and no output.
  bool sinks = false;

  int64_t batch = 1, q_len = 0, kv_len = 0;
  int64_t heads = 1, kv_heads = 1, plan_heads = 1;
  int64_t head_dim = 0, v_head_dim = 0;
  Tile tile;
  Tile logical_block;  // of the request, which asks for a lowering reason
  int64_t steps = 0;   // that the worklist has room for

  Element element = Element::f32;
  double scale = 1, softcap = 0;
  bool sink_logits = false;
  bool dlse = false;

  std::vector<Mask> masks;  // groups of equal size of the plan heads
  int64_t window_bounds = 0;
  int64_t pick_heads = 0, picks_k = 0;  // 0: no picks

  // Tiles lie in another order than their tokens: the numbers of tokens are
  // arrays too, in place of `rows`. One batch row.
  bool numbered = false;
  // Which mask a plan head has is an array, for each device of a mesh has other
  // plan heads.
  bool numbered_masks = false;

  // What the program loops over, batch row by batch row: heads that share a
  // plan head and whose K/V heads are whole.
  int64_t units() const;
  int64_t unit_heads() const { return heads / units(); }
  int64_t unit_kv_heads() const;
  int64_t unit_group() const { return unit_heads() / unit_kv_heads(); }

  // What it takes at a time.
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
  // A mask counts the keys of its documents, or of its segments.
  bool ranks_documents() const;
  bool ranks_segments() const;
  bool names_prefix() const;
  bool names_tree() const;
  bool names_same(int64_t name) const;
};

// In q_positions: a query that no key may see. In k_numbers: a key that does
// not count.
inline constexpr int32_t kNoPosition = std::numeric_limits<int32_t>::min();
inline constexpr int32_t kNoKey = -1;

// q_same_a and k_same_a: ids of no group are -2 there and -1 here, so that
// equal numbers are a group.

// k_tree_ends has the token at which the subtree of each key ends.

// Columns of the array `rows`, a line for each batch row.
enum class RowFact : uint8_t { q_offset, prefix, valid, q_end };
inline constexpr int64_t kRowFacts = 4;

// In the program's order. Integers first: rows, bounds, steps and range, ids,
// ranks and picks, as far as they are needed; then the arrays of the call.
std::vector<Argument> arguments_of(const Shape& s);

std::string forward_program(const Shape& s);  // out, lse, tiles
std::string sinks_program(const Shape& s);    // mass, entropy, live, tiles
std::string backward_program(
    const Shape& s);  // dq, dk, dv, dsink_logits, tiles
// The same results of what the writer's arguments are. dk and dv are sums in
// float32.
Writer::Values write_forward(Writer& w, const Shape& s);
Writer::Values write_backward(Writer& w, const Shape& s);

}  // namespace tessera::xla
