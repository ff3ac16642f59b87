// tessera/layouts.h: other layouts of a worklist, each derived by a pure
// function: packed steps, the rectangle, regrouped rows, bitmaps of partial
// tiles, the BlockMask of PyTorch FlexAttention, and the MaskInfo of Splash in
// JAX and in tokamax.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/batch.h"
#include "tessera/facts.h"
#include "tessera/machine.h"
#include "tessera/plan.h"
#include "tessera/result.h"

namespace tessera {

// A packed step. From the highest bit down: row (14 bits), column (14), class
// (2), first (1), last (1). Row and column are relative to the batch row.
struct Step {
  uint32_t word = 0;

  int64_t row() const { return word >> 18; }
  int64_t column() const { return word >> 4 & 0x3fff; }
  // 0: empty, 1: partial, 2: full, 3: full and crossing q_len or kv_len.
  int64_t step_class() const { return word >> 2 & 3; }
  bool first() const { return word >> 1 & 1; }
  bool last() const { return word & 1; }
  bool operator==(const Step&) const = default;
};
inline constexpr int64_t kMaxStepRows = 16384;

struct Steps {
  std::vector<Step> steps;
  std::vector<uint32_t> range;  // list l is steps [range[l], range[l + 1])
  int64_t tiles_per_pass = 1;   // the steps of every row are a multiple of it
};

// A kernel may take several tiles of a row in one pass. Each row is then padded
// to whole passes with class-0 steps that repeat its last column.
inline constexpr int64_t kMaxTilesPerPass = 64;

// The number of steps that a worklist packs to. A row without tiles gets one
// class-0 step with first and last set, padded as other rows.
int64_t step_count(const Worklist& w, int64_t tiles_per_pass = 1);
Result<Steps> pack_steps(const Batch& batch, bool transposed,
                         int64_t tiles_per_pass = 1);
// Converts packed steps back to the worklist. Classes 2 and 3 both become full.
Result<Worklist> list_from_steps(const Steps& steps, int64_t rows,
                                 int64_t columns);

// The memory of a target's core. Scalar memory is counted in 32-bit words that
// a kernel's scalar arrays may fill; each array takes whole granules. Only
// targets whose limits were measured are known.
struct Target {
  std::string name;
  int64_t scalar_words = 0;
  int64_t granule = 1;
  int64_t vector_bytes = 0;
};
Result<Target> find_target(std::string_view name);
// The words of scalar memory that arrays of these sizes take in total.
int64_t scalar_words(const Target& target,
                     std::initializer_list<int64_t> words);

// One launch of a kernel: steps [begin, end), which fit the target's scalar
// memory. They belong to lists [first_list, end_list); the first and the last
// list may be cut. Cuts are between rows, so no two launches write one output.
struct Launch {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t first_list = 0;
  int64_t end_list = 0;

  // Scalar words of the three arrays that a kernel reads: the steps, a range of
  // lists + 1 words, and two bounds followed by one offset for each list.
  int64_t words(const Target& target) const;
  bool operator==(const Launch&) const = default;
};
Result<std::vector<Launch>> split_launches(const Steps& steps,
                                           const Target& target);

// The most bytes for each of: packed steps, the rectangle, the bitmaps, and the
// classes of regrouped rows. More is an error.
inline constexpr int64_t kMaxLayoutBytes = int64_t{1} << 30;

// All rows padded with class 0 to one width, that of the widest row or more.
struct Rectangle {
  int64_t lists = 0;
  int64_t rows = 0;
  int64_t width = 0;
  std::vector<int32_t> column;      // [lists, rows, width]; 0 in the padding
  std::vector<uint8_t> tile_class;  // [lists, rows, width]
};
int64_t grid_width(const Worklist& w);  // tiles of the widest row
Result<Rectangle> make_rectangle(const Worklist& w, int64_t width);
Result<Worklist> list_from_rectangle(const Rectangle& r, int64_t columns);

// Rows regrouped for a kernel that fetches each key tile once for
// `rows_per_group` query tiles: those in the union of the rows,
// `tiles_per_step` at a time. The last group of a list may have fewer rows.
struct Group {
  uint32_t first_row = 0;  // the group has rows [first_row, first_row + rows)
  uint32_t rows = 0;
  uint32_t begin =
      0;  // the group's columns: [begin, end) of Regrouped::columns
  uint32_t end = 0;
};
struct Regrouped {
  int64_t rows_per_group = 1;
  int64_t tiles_per_step = 1;
  std::vector<uint32_t> group_start;  // [lists + 1], into groups
  std::vector<Group> groups;
  std::vector<uint32_t> columns;  // ascending within a group
  // [columns, rows_per_group]: the class of each row's tile in the column.
  std::vector<uint8_t> classes;
  // Sum over the groups of max(1, ceil(columns / tiles_per_step)).
  int64_t steps = 0;
  int64_t dead_tiles = 0;  // class-0 slots of real rows: the cost of sharing
};
inline constexpr int64_t kMaxGroupRows = 64;
Result<Regrouped> regroup(const Worklist& w, int64_t rows_per_group,
                          int64_t tiles_per_step);

// Token masks of the partial tiles; equal bitmaps are stored once, numbered in
// the order of the forward list. The pair of query q and key k of the tile is
// bit q * tile.kv + k of the bitmap, lowest bit first. Bits beyond q_len or
// kv_len are 0.
struct Bitmaps {
  int64_t words_per_tile = 0;     // 64-bit words
  std::vector<uint64_t> words;    // [distinct, words_per_tile]
  std::vector<int32_t> of_entry;  // bitmap of each forward entry; -1: full
};
Result<Bitmaps> make_bitmaps(const Batch& batch);

// Token masks in the form of JAX Splash, for use with the rectangle of a list:
// one byte for each pair and, for each cell of the rectangle, the number of its
// mask.
struct MaskBlocks {
  int64_t rows = 0;                // of a block: tile.q, transposed tile.kv
  int64_t columns = 0;             // tile.kv, transposed tile.q
  std::vector<uint8_t> blocks;     // [distinct, rows, columns], 1 is legal
  std::vector<int32_t> mask_next;  // [lists, rows, width]; 0 if not partial
};
Result<MaskBlocks> make_mask_blocks(const Batch& batch, bool transposed,
                                    int64_t width);

// One pair of num_blocks and indices of a BlockMask: int32, C order. A row of
// indices is a permutation of all blocks: first the num_blocks listed blocks,
// then the other blocks, both ascending.
struct FlexLists {
  std::vector<int32_t> num_blocks;  // [batch, heads, rows]
  std::vector<int32_t> indices;     // [batch, heads, rows, columns]

  bool operator==(const FlexLists&) const = default;
};

// The BlockMask that create_block_mask makes with BLOCK_SIZE (tile.q, tile.kv).
// Flex pads both lengths to whole blocks with illegal pairs, so a full tile
// that crosses q_len or kv_len is listed as partial.
struct FlexBlockMask {
  int64_t batch = 1;
  int64_t heads = 1;
  int64_t rows = 0;
  int64_t columns = 0;
  FlexLists kv;       // kv_num_blocks, kv_indices: partial tiles
  FlexLists full_kv;  // full_kv_num_blocks, full_kv_indices
  FlexLists q;        // transposed: rows are key tiles, columns query tiles
  FlexLists full_q;
};

// Flex takes masks of one head or of all query heads: a plan of several heads
// is repeated to `heads`, a multiple of the plan's. 0: the plan's heads. The
// arrays are dense, so more than kMaxTiles indices in one is an error. `before`
// is a result that is no longer needed; its memory is reused, because page
// faults of new memory would cost more than the writes.
Result<FlexBlockMask> make_flex(const Batch& batch, int64_t heads = 0,
                                FlexBlockMask* before = nullptr);

enum class SplashType : uint8_t { boolean, int8, int16, int32 };

// An array in C order, with the dtype that Splash chooses.
struct SplashArray {
  SplashType type = SplashType::int32;
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;

  int64_t item_bytes() const;
  int64_t size() const;
  int64_t at(int64_t i) const;  // i < size()
  bool operator==(const SplashArray&) const = default;
};

// data_next, mask_next and block_mask are [heads, q blocks, kv blocks], or
// [head shards, ...] if all heads of each shard share a mask. With `shrink` the
// last dimension (dkv: the middle one, of each q shard) is the number of live
// tiles of the widest row, at least 1.
struct SplashMaskInfo {
  SplashArray data_next;
  // Absent if partial_mask_blocks is absent.
  std::optional<SplashArray> mask_next;
  SplashArray block_mask;
  // [distinct, block_q, block_kv], dkv: [distinct, block_kv, block_q]. Absent
  // if no tile is partial or the kernel computes the mask.
  std::optional<SplashArray> partial_mask_blocks;
  // [q_len]: 0, 1, 2, ...; present if the kernel computes the mask.
  std::optional<SplashArray> q_sequence;
};

struct SplashOptions {
  bool dkv = false;      // process_mask_dkv instead of process_mask
  bool shrink = true;    // shrink_grid
  bool downcast = true;  // downcast_smem_data
  int64_t q_shards = 1;  // q_seq_shards
  int64_t head_shards = 1;
  int64_t heads = 0;  // query heads, a multiple of plan heads; 0: plan heads
  // The kernel computes the mask from (query, key) and loads no partial blocks,
  // as Splash does for CausalMask, LocalMask and ChunkedCausalMask. Otherwise
  // the mask is an array to Splash (NumpyMask, FullMask, `&`, `|`). As in
  // Splash, heads with different masks get arrays even if this is set. A mask
  // that depends on more than positions is refused.
  bool computable = false;
};

// The most bytes of the arrays and of the memory to build them, together. More
// is an error.
inline constexpr int64_t kMaxSplashBytes = int64_t{1} << 31;

// A mask of Splash has no batch; `batch_row` selects the row. Heads share a
// mask if their masks mean the same, also if they are written differently.
// Facts such as documents become part of the arrays and so skip tiles. The
// caller must then not pass Splash's segment ids, which skip no tile and treat
// padding -1 as equal to -1. Splash itself fails for a mask without a partial
// tile in several q shards and for q shards without a live tile; this function
// returns the arrays that have the correct meaning.
Result<SplashMaskInfo> make_splash(const Batch& batch, int64_t batch_row,
                                   const SplashOptions& options);

// Sizes of the mask arrays of a run, which are arguments of its compiled
// program. The sizes are ceilings, so one compile serves all batches under
// them.
struct SplashRun {
  bool dkv = false;   // as in SplashOptions
  int64_t heads = 0;  // as in SplashOptions
  // Room for distinct partial tiles; more are an error. 0: the bucket of the
  // batch's number.
  int64_t max_blocks = 0;
};

// The MaskInfo for Splash in JAX: shrunk, int32, with the width max_width of
// the request. mask_next and partial_mask_blocks are present even if no tile is
// partial. If the masks of heads differ, rows keep their full width, whatever
// the ceiling.
Result<SplashMaskInfo> make_splash_run(const Batch& batch, int64_t batch_row,
                                       const SplashRun& run);

// The MaskInfo of tokamax: only the active tiles, row by row as _process_mask
// of tokamax lists them, padded to the request's max_steps. With dkv the rows
// are key tiles, and a row without a query gets one step of class 0, so that
// its gradients are written.
struct TokamaxMaskInfo {
  std::vector<int32_t> mask_next;
  std::vector<int32_t> active_rows;  // -1 after the active steps
  std::vector<int32_t> active_cols;  // -1 after the active steps
  std::vector<int32_t> block_mask;   // 0 after the active steps
  int64_t num_active_blocks = 0;
  SplashArray partial_mask_blocks;  // int8; shape as in SplashMaskInfo
};

// All heads share one mask: a batch with several masks is refused, and so is a
// `run` with heads other than 0.
Result<TokamaxMaskInfo> make_tokamax_run(const Batch& batch, int64_t batch_row,
                                         const SplashRun& run);

// Picks in the layout of index-sparse attention on GPUs: for each query, and
// then for each group of heads, the numbers of the key blocks that it attends
// to. A block is n keys for a mask with blocks(n); n is 1 for picks of tokens.
//
//   auto picks = picks_from_topk(topk_idxs, {{q_len, groups, k}}, request);
//   facts.picks = picks->view();
//   auto back = make_topk(batch);  // the same numbers at the same places

struct TopkPicks {
  std::vector<int32_t> blocks;  // [batch, heads, q_len, k]
  int64_t heads = 1;
  int64_t k = 0;

  Picks view() const { return {blocks, heads, k}; }
};

// `topk_idxs` is [queries, k] or [queries, groups, k], with the queries of all
// batch rows in order, or [batch, q_len, groups, k]; in C order. Numbers count
// from the first key of their batch row and may be in any order. -1 is an
// unused slot, at any place. A number outside the keys, or twice for one query,
// is refused, because other stacks disagree about it: some skip it, some count
// the key twice.
Result<TopkPicks> picks_from_topk(Ints topk_idxs,
                                  std::span<const int64_t> shape,
                                  const Request& request);

struct TopkIdxs {
  // [batch * q_len, groups, k]; with one group [batch * q_len, k].
  std::vector<int64_t> shape;
  std::vector<int32_t> values;
};

// The picks that a batch attends with. Picks of a router, and picks read from a
// plan file, are ascending with -1 at the end.
Result<TopkIdxs> make_topk(const Batch& batch);

// Counts of keys that a forward pass reads, summed over the lists of a plan. A
// key's K and V count as one.
struct KeyReads {
  int64_t by_query = 0;  // each query reads its own keys: legal pairs
  int64_t needed = 0;    // each tile row reads keys that some query of it sees
  int64_t read = 0;      // each tile row reads all keys of its tiles

  int64_t extra() const { return read - needed; }
  bool operator==(const KeyReads&) const = default;
};
Result<KeyReads> count_key_reads(const Batch& batch);

// Converts a mask of whole blocks, one byte or bit for each, to both worklists.
//
//   BlockLists lists;  // keep it: its memory is reused by every call
//   worklists_of_blocks({cells, heads, rows, columns}, lists);
//
// The lists are for a caller's own kernels. Lanes take a Batch: for them
// convert the mask with picks_from_blocks() to picks of `blocks(n)`, which the
// Batch's mask may combine with other atoms.

// The active blocks of each list (a head of a batch row): [lists, rows,
// columns] in C order.
struct BlockMask {
  // One byte for each block; 0: not active. With `packed` one bit for each
  // block, lowest bit first; each row begins at a byte, and the bits after its
  // columns are 0.
  std::span<const uint8_t> cells;
  int64_t lists = 1;
  int64_t rows = 0;
  int64_t columns = 0;
  bool packed = false;

  int64_t row_bytes() const { return packed ? (columns + 7) / 8 : columns; }
};

// The worklists of a BlockMask. Every entry has the class full.
struct BlockLists {
  Worklist forward;
  Worklist transposed;
  std::vector<uint64_t> scratch;
};

struct BlockOptions {
  // The most active blocks of all lists; more is an error.
  int64_t max_tiles = kMaxTiles;
  std::optional<Isa> isa;  // as in CpuOptions
};

// Runs on the calling thread. On an error the lists are unchanged.
Result<void> worklists_of_blocks(const BlockMask& mask, BlockLists& lists,
                                 const BlockOptions& options = {});

// The same blocks as picks, for a request whose mask names blocks(n). A block
// is n queries by n keys, and `mask` has one list for each batch row and pick
// head. Each query has the picks of its block row. The picks take 4 bytes for
// each query, head and block of the widest row, in total at most
// kMaxLayoutBytes.
Result<TopkPicks> picks_from_blocks(const BlockMask& mask,
                                    const Request& request);

}  // namespace tessera
