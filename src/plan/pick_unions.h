// plan/pick_unions.h: the union of the blocks that the queries of each tile row
// pick, and the form of picks in a plan file: bits over these unions.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "mask/bind.h"
#include "tessera/route.h"

namespace tessera::plan {

// Unions of the plan's own tile rows, independent of the router's tile. A mask
// must name the picks, and they must be bound.
PickUnions plan_unions(const mask::Bound& bound, int64_t block);

// Arrays of 32-bit words: lists as in the picks, tile rows as in the plan.
struct PickWords {
  std::vector<uint32_t> counts;  // blocks in the union of each tile row
  std::vector<uint32_t> blocks;  // blocks of all unions, ascending within a row
  // One set of bits per query, in as many words as the union of its row needs.
  // Bit s is 1 if the query picks block s of the union.
  std::vector<uint32_t> bits;
  // Per tile of the forward lists: the slot of the first block of its row's
  // union that has keys in the tile; kNoSlot if there is none.
  std::vector<uint32_t> slots;
};
inline constexpr uint32_t kNoSlot = UINT32_MAX;

PickWords pick_words(const mask::Bound& bound, int64_t block,
                     const Worklist& forward);

// Computes only PickWords::slots.
std::vector<uint32_t> tile_slots(const mask::Bound& bound, int64_t block,
                                 const PickUnions& unions,
                                 const Worklist& forward);

// The sizes needed to decode PickWords.
struct PickLayout {
  int64_t batch = 1, heads = 1, q_len = 0, k = 0;
  int64_t tile_q = 256;
  int64_t blocks = 0;  // blocks of a batch row
};

// Decodes the picks from counts, blocks and bits: [batch, heads, q_len, k],
// ascending, then -1. Checks every word. The caller has checked that an array
// of `layout` fits in memory.
Result<std::vector<int32_t>> picks_of_words(const PickLayout& layout,
                                            std::string_view counts,
                                            std::string_view blocks,
                                            std::string_view bits,
                                            std::string_view where);

}  // namespace tessera::plan
