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

// Arrays of tokens whose dim is no multiple of the lanes have the tokens last,
// as XLA lays them out too; all others have the dim last.
inline bool tokens_last(int64_t dim) { return dim % kLanes != 0; }

// Name of the array that holds one part of the keys: "k", "k_1", and so on.
inline std::string key_part(std::string_view array, size_t part) {
  std::string out(array);
  return part == 0 ? out : out + "_" + std::to_string(part);
}

// Lengths are those of the arrays, in whole blocks; a batch may fill less.
struct KernelShape {
  int64_t batch = 1;
  int64_t heads = 1;
  int64_t kv_heads = 1;
  int64_t head_dim = 128;     // of queries and keys
  int64_t v_head_dim = 128;   // of values and outputs
  Dtype dtype = Dtype::bf16;  // bf16 or f32, of q, k, v and out
  int64_t q_len = 0;
  int64_t kv_len = 0;
  int64_t block_q = 512;  // the plan's tile
  int64_t block_kv = 256;
  int64_t tiles_per_pass = 4;
  int64_t heads_per_pass = 1;
  // From a copy's start to its use: passes, backward columns of tiles.
  int64_t fetch_ahead = 4;
  // Steps that the arrays hold. Where scalar memory cannot hold them all they
  // come a page at a time, and each list has `pages` pages of `page` steps;
  // page 0: no pages.
  int64_t steps = 0;
  int64_t page = 0;
  int64_t pages = 1;
  double scale = 1;
  double softcap = 0;        // 0 is off
  bool has_low = false;      // key - position >= bounds[0]
  bool has_high = false;     // key - position <= bounds[1]
  bool rounded_sum = false;  // forward: the row sum adds bf16 weights
  // Inputs may be NaN or infinite; such a number affects no result for which
  // its pairs are illegal.
  bool any_numbers = false;
  bool has_dlse = false;   // backward: the log-sum-exp has a gradient
  bool has_sinks = false;  // one more logit a head
  bool telemetry = false;  // forward without values, for sink telemetry
  bool wide_sums = false;  // backward: dK and dV go out in float32
  // Backward: rows of tiles whose dQ is in vector memory at a time, a chunk.
  // Each chunk walks its own columns, whose sums wait in HBM for the next
  // chunk, or the next head that shares the keys. 0: no chunks, all rows fit.
  int64_t chunk_rows = 0;
  // One of several calls of a pass on a mesh (shards.h). Each call takes other
  // columns and is told which rows these need. The first call with a row begins
  // the row's sums, the last one ends them; between calls the sums wait in HBM.
  bool in_parts = false;
  bool late = false;          // continues in the previous call's arrays
  bool late_columns = false;  // backward: also for dK and dV
  // Keys of each array, where the keys lie in several arrays one after the
  // other (key_part). Empty: one array has all keys.
  std::vector<int64_t> key_parts = {};
  // How many bitmaps of tiles there is room for, where bitmaps say which pairs
  // are legal. 0: bounds and ids say so.
  int64_t bitmaps = 0;
  int64_t plan_heads = 1;  // each has its list, for heads / plan_heads heads
  int64_t core_bytes = int64_t{128} << 20;  // the target's vector memory

  // Shape of a tile of tokens in arrays and rings.
  std::vector<int64_t> tile_of(int64_t tokens, int64_t dim) const {
    if (tokens_last(dim)) return {dim, tokens};
    return {tokens, dim};
  }
  int64_t rows() const { return q_len / block_q; }  // of tiles
  int64_t columns() const { return kv_len / block_kv; }
  int64_t lists() const { return batch * plan_heads; }
  bool in_chunks() const { return chunk_rows > 0; }
  // Backward: rows whose dQ is in vector memory at a time, a chunk's or all.
  int64_t rows_at_once() const { return in_chunks() ? chunk_rows : rows(); }
  int64_t chunks() const {
    return in_chunks() ? ceil_div(rows(), chunk_rows) : 1;
  }
  // Each list's chunks have steps of their own, one after another.
  int64_t step_lists() const { return lists() * chunks(); }
  int64_t heads_of_list() const { return heads / plan_heads; }
  // A pass's heads share one kv head, or are all heads of several.
  int64_t kv_heads_per_pass() const {
    return std::max<int64_t>(1, heads_per_pass * kv_heads / heads);
  }
  // A bitmap is [bit_rows, block_q] words: bit j of row r is key j * bit_rows +
  // r.
  int64_t word_bits() const { return block_kv % 256 == 0 ? 32 : 16; }
  int64_t bit_rows() const { return block_kv / word_bits(); }
};

// Ids that never match: of a vetoed key, of a vetoed query, and of a query
// beyond the batch's own.
inline constexpr int32_t kNoKey = -1;
inline constexpr int32_t kNoQuery = -2;
inline constexpr int32_t kNotThere = -3;

// Head dims are multiples of kDimStep up to kMaxDim.
inline constexpr int64_t kDimStep = 64;
inline constexpr int64_t kMaxDim = 256;
// A tile's sides are multiples of kLanes up to kMaxTileSide.
inline constexpr int64_t kMaxTileSide = 1024;
// Limits of the scale and of a softcap: beyond them the scores, or the scale
// over the softcap, would silently become infinity or 0 in float32.
inline constexpr double kMinScale = 1e-30;
inline constexpr double kMaxScale = 1e6;
// Tiles of queries that the backward kernel fetches ahead at a head's start;
// fewer with several heads, so that it is about as many bytes.
inline int64_t rows_ahead(int64_t heads_per_pass) {
  return heads_per_pass > 1 ? 1 : 3;
}
// Passes whose queries the backward kernel fetches ahead.
inline constexpr int64_t kPassesAhead = 2;
// Slots of the backward kernel's ring of dQ tiles that go out.
inline constexpr int64_t kOutRing = 2;
// Numbers of the first bitmaps: no pair is legal, all pairs are.
inline constexpr int32_t kNoPairs = 0;
inline constexpr int32_t kAllPairs = 1;
inline constexpr int32_t kFirstBitmap = 2;
// `bounds` holds low, high, then the position offset of each batch row.
inline constexpr int64_t kBoundsHead = 2;
// `rows` of a call in parts holds for each list, or chunk of it: the number of
// rows, the first column, then a word for each row, its number and two bits.
// The forward kernel has all rows in order and reads only the bits.
inline constexpr int64_t kRowsHead = 2;
inline constexpr int32_t kRowBegins = 2;  // no earlier call has the row
inline constexpr int32_t kRowEnds = 1;    // no later call has the row
inline constexpr int32_t kRowShift = 2;
// Words of a chunk, after all else in `range`: its first column and the end of
// its columns; the column from which on no earlier chunk has columns, and the
// one before which no later chunk has any.
inline constexpr int64_t kChunkWords = 4;
inline constexpr int64_t kChunkFirst = 0, kChunkEnd = 1, kChunkBegins = 2,
                         kChunkEnds = 3;

}  // namespace tessera::mosaic
