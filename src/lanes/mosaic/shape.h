// lanes/mosaic/shape.h: everything that is fixed when a kernel is compiled.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/integers.h"
#include "tessera/attention.h"

namespace tessera::mosaic {

inline constexpr int64_t kLanes = 128;
inline constexpr int64_t kSublanes = 8;

// Arrays of tokens whose dim does not fill lanes have the tokens last, as XLA
// lays them out too; all others have the dim last.
inline bool tokens_last(int64_t dim) { return dim % kLanes != 0; }

// Of arrays that each hold a part of the keys: "k", "k_1", and so on.
inline std::string key_part(std::string_view array, size_t part) {
  std::string out(array);
  return part == 0 ? out : out + "_" + std::to_string(part);
}

// Lengths are what the arrays hold: whole blocks, whatever the batch fills of
// them.
struct KernelShape {
  int64_t batch = 1;
  int64_t heads = 1;
  int64_t kv_heads = 1;
  int64_t head_dim = 128;     // of queries and keys
  int64_t v_head_dim = 128;   // of values and outputs
  Dtype dtype = Dtype::bf16;  // of queries, keys, values, outputs: or f32
  int64_t q_len = 0;
  int64_t kv_len = 0;
  int64_t block_q = 512;  // the plan's tile
  int64_t block_kv = 256;
  int64_t tiles_per_pass = 4;
  int64_t heads_per_pass = 1;
  // Between a copy's start and its use: passes, backward columns of tiles.
  int64_t fetch_ahead = 4;
  // That the arrays hold. Where scalar memory does not hold all of them they
  // come there a page at a time, and each list has `pages` of `page` steps; 0:
  // it does.
  int64_t steps = 0;
  int64_t page = 0;
  int64_t pages = 1;
  double scale = 1;
  double softcap = 0;        // 0 is off
  bool has_low = false;      // key - position >= bounds[0]
  bool has_high = false;     // key - position <= bounds[1]
  bool rounded_sum = false;  // forward: the row sum is of bf16
  // Numbers that are not finite reach nothing that they are illegal for.
  bool any_numbers = false;
  bool has_dlse = false;   // backward: the log-sum-exp has a gradient
  bool has_sinks = false;  // one more logit a head
  bool telemetry = false;  // forward without values, for sink telemetry
  bool wide_sums = false;  // backward: dK and dV go out in float32
  // Backward, of dQ: so many rows of tiles have room at a time. Each such chunk
  // takes its own columns, whose sums wait in HBM from one to the next, and
  // from a head to the next that shares its keys. 0: all rows have.
  int64_t chunk_rows = 0;
  // One of several calls of a pass on a mesh (shards.h), each of other columns,
  // which is told what rows these need. The first begins a row's sums, the last
  // ends them; between calls they wait in HBM.
  bool in_parts = false;
  bool late = false;          // it goes on in the arrays of the call before
  bool late_columns = false;  // backward: dK and dV too lie where others are
  // Keys that lie in several arrays, one behind the other (key_part): so many
  // in each of them. None: one array has all.
  std::vector<int64_t> key_parts = {};
  // Where bounds and ids do not say which pairs are legal, bitmaps of tiles do:
  // there is room for so many. 0: bounds and ids.
  int64_t bitmaps = 0;
  int64_t plan_heads = 1;  // each has its list, for heads / plan_heads heads
  int64_t core_bytes = int64_t{128} << 20;  // the target's vector memory

  // A tile of so many tokens, as arrays and rings have it.
  std::vector<int64_t> tile_of(int64_t tokens, int64_t dim) const {
    if (tokens_last(dim)) return {dim, tokens};
    return {tokens, dim};
  }
  int64_t rows() const { return q_len / block_q; }  // of tiles
  int64_t columns() const { return kv_len / block_kv; }
  int64_t lists() const { return batch * plan_heads; }
  bool in_chunks() const { return chunk_rows > 0; }
  // Backward, those that have room at a time: of a chunk, or all.
  int64_t rows_at_once() const { return in_chunks() ? chunk_rows : rows(); }
  int64_t chunks() const {
    return in_chunks() ? ceil_div(rows(), chunk_rows) : 1;
  }
  // Each list's chunks have steps of their own, one after another.
  int64_t step_lists() const { return lists() * chunks(); }
  int64_t heads_of_list() const { return heads / plan_heads; }
  // A pass's heads share one of keys, or each of these has all of its own.
  int64_t kv_heads_per_pass() const {
    return std::max<int64_t>(1, heads_per_pass * kv_heads / heads);
  }
  // A bitmap is [bit_rows, block_q] words: bit j of row r is key j bit_rows +
  // r.
  int64_t word_bits() const { return block_kv % 256 == 0 ? 32 : 16; }
  int64_t bit_rows() const { return block_kv / word_bits(); }
};

// Ids that no pair shares: of a key that nothing sees, of a query that sees
// nothing, and of one beyond the batch's own.
inline constexpr int32_t kNoKey = -1;
inline constexpr int32_t kNoQuery = -2;
inline constexpr int32_t kNotThere = -3;

// Head dims are multiples, up to.
inline constexpr int64_t kDimStep = 64;
inline constexpr int64_t kMaxDim = 256;
// A tile's sides are multiples of kLanes, up to.
inline constexpr int64_t kMaxTileSide = 1024;
// Of the scale and of a softcap: beyond these float32 would silently make
// infinity or 0 of the scores, or of the scale over the softcap.
inline constexpr double kMinScale = 1e-30;
inline constexpr double kMaxScale = 1e6;
// Tiles of queries that the backward kernel fetches ahead at a head's start:
// about as many bytes for several heads as for one.
inline int64_t rows_ahead(int64_t heads_per_pass) {
  return heads_per_pass > 1 ? 1 : 3;
}
// Passes whose queries the backward kernel fetches ahead.
inline constexpr int64_t kPassesAhead = 2;
// Its tiles of dQ on their way out.
inline constexpr int64_t kOutRing = 2;
// The first bitmaps: no pair is legal, all are.
inline constexpr int32_t kNoPairs = 0;
inline constexpr int32_t kAllPairs = 1;
inline constexpr int32_t kFirstBitmap = 2;
// Of bounds: low, high, then the offset of each batch row.
inline constexpr int64_t kBoundsHead = 2;
// Of the rows that a call in parts is told, for each list, or chunk of it: how
// many there are, and the first column; then each row, its number beside two
// bits. Forward only these, of all rows in their order.
inline constexpr int64_t kRowsHead = 2;
inline constexpr int32_t kRowBegins = 2;  // no call before had it
inline constexpr int32_t kRowEnds = 1;    // no call after has it
inline constexpr int32_t kRowShift = 2;
// Of a chunk, behind all else in `range`: its first column and the end of its
// columns; from which on no chunk before has them, and up to which none after.
inline constexpr int64_t kChunkWords = 4;
inline constexpr int64_t kChunkFirst = 0, kChunkEnd = 1, kChunkBegins = 2,
                         kChunkEnds = 3;

}  // namespace tessera::mosaic
