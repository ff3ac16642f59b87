// tessera/layouts.h: other layouts of a worklist, each derived by a pure
// function: packed steps, the rectangle, regrouped rows, bitmaps of partial
// tiles, PyTorch FlexAttention's BlockMask and the MaskInfo of Splash, JAX's
// and tokamax's.
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

// A packed step: row 14 bits, column 14, class 2, first 1, last 1, from the
// highest bit down; row and column are relative to the batch row.
struct Step {
  uint32_t word = 0;

  int64_t row() const { return word >> 18; }
  int64_t column() const { return word >> 4 & 0x3fff; }
  // 0 empty, 1 partial, 2 full, 3 full but crossing q_len or kv_len.
  int64_t step_class() const { return word >> 2 & 3; }
  bool first() const { return word >> 1 & 1; }
  bool last() const { return word & 1; }
  bool operator==(const Step&) const = default;
};
inline constexpr int64_t kMaxStepRows = 16384;

struct Steps {
  std::vector<Step> steps;
  std::vector<uint32_t> range;  // list l is steps [range[l], range[l + 1])
  int64_t tiles_per_pass = 1;   // every row has a multiple of it
};

// A kernel may take several tiles of a row in one pass; each row is then filled
// up with class-0 steps that name its last column again.
inline constexpr int64_t kMaxTilesPerPass = 64;

// Steps that a worklist packs to: a row without tiles gets one class-0 step
// with first and last set.
int64_t step_count(const Worklist& w, int64_t tiles_per_pass = 1);
Result<Steps> pack_steps(const Batch& batch, bool transposed,
                         int64_t tiles_per_pass = 1);
// The worklist again; classes 2 and 3 are both full there.
Result<Worklist> list_from_steps(const Steps& steps, int64_t rows,
                                 int64_t columns);

// Memory of a target's core: scalar memory, in 32-bit words that a kernel's
// scalar arrays may fill, each in whole granules, and vector memory. Only
// targets whose limits were found by measuring are known.
struct Target {
  std::string name;
  int64_t scalar_words = 0;
  int64_t granule = 1;
  int64_t vector_bytes = 0;
};
Result<Target> find_target(std::string_view name);
// What arrays of so many words each take.
int64_t scalar_words(const Target& target,
                     std::initializer_list<int64_t> words);

// Steps [begin, end) of lists [first_list, end_list), the first and the last of
// them maybe in part: what fits the target's scalar memory at one time. Cut at
// rows, so that no output is written by two launches.
struct Launch {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t first_list = 0;
  int64_t end_list = 0;

  // Its steps, a range word per list and one more, and an offset per list
  // after two bounds: the three arrays that a kernel reads.
  int64_t words(const Target& target) const;
  bool operator==(const Launch&) const = default;
};
Result<std::vector<Launch>> split_launches(const Steps& steps,
                                           const Target& target);

// The most bytes of packed steps, the rectangle, the bitmaps and the classes of
// regrouped rows; more is an error.
inline constexpr int64_t kMaxLayoutBytes = int64_t{1} << 30;

// Every row as wide as the widest or wider, padded with class 0.
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

// Rows regrouped for a kernel: `rows_per_group` query tiles share one fetch of
// each key tile in the union of their rows, `tiles_per_step` at a time. The
// last group of a list may have fewer rows.
struct Group {
  uint32_t first_row = 0;  // the group is rows [first_row, first_row + rows)
  uint32_t rows = 0;
  uint32_t begin = 0;  // its columns: [begin, end) of Regrouped::columns
  uint32_t end = 0;
};
struct Regrouped {
  int64_t rows_per_group = 1;
  int64_t tiles_per_step = 1;
  std::vector<uint32_t> group_start;  // per list, into groups; lists + 1
  std::vector<Group> groups;
  std::vector<uint32_t> columns;  // ascending within a group
  // [columns, rows_per_group]: class of each row's tile in that column.
  std::vector<uint8_t> classes;
  // Steps the groups take: sum of ceil(columns / tiles_per_step), at least 1.
  int64_t steps = 0;
  int64_t dead_tiles = 0;  // class-0 slots of real rows: the sharing's price
};
inline constexpr int64_t kMaxGroupRows = 64;
Result<Regrouped> regroup(const Worklist& w, int64_t rows_per_group,
                          int64_t tiles_per_step);

// Token masks of the partial tiles, each distinct one stored once. Bit k of
// tile row q is bit (q * tile.kv + k) of the bitmap, lowest bit first; bits
// beyond q_len or kv_len are 0. Numbered as the forward list meets them.
struct Bitmaps {
  int64_t words_per_tile = 0;     // of 64 bits
  std::vector<uint64_t> words;    // [distinct, words_per_tile]
  std::vector<int32_t> of_entry;  // per forward entry; -1 where full
};
Result<Bitmaps> make_bitmaps(const Batch& batch);

// Token masks as JAX Splash has them, beside the rectangle of a list: a byte
// for each pair and, for each cell of the rectangle, the number of its mask.
struct MaskBlocks {
  int64_t rows = 0;  // of a block: the tile, transposed its keys by its queries
  int64_t columns = 0;
  std::vector<uint8_t> blocks;     // [distinct, rows, columns], 1 is legal
  std::vector<int32_t> mask_next;  // [lists, rows, width]; 0 where not partial
};
Result<MaskBlocks> make_mask_blocks(const Batch& batch, bool transposed,
                                    int64_t width);

// One num_blocks, indices pair of a BlockMask: int32, C order. A row of
// indices is a permutation of all blocks: the first num_blocks are the listed
// ones ascending, the others follow, ascending too.
struct FlexLists {
  std::vector<int32_t> num_blocks;  // [batch, heads, rows]
  std::vector<int32_t> indices;     // [batch, heads, rows, columns]

  bool operator==(const FlexLists&) const = default;
};

// As create_block_mask makes it with BLOCK_SIZE (tile.q, tile.kv). Flex pads
// both lengths to whole blocks with illegal pairs, so a full tile that crosses
// q_len or kv_len stands among the partial ones.
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

// Flex takes masks of one head or of every query head: a plan of several heads
// is repeated over `heads`, which they must divide. 0: the plan's own. The
// arrays are dense, so more than kMaxTiles indices each is an error. `before`:
// one that is no longer needed. Its memory is used again, since fresh memory of
// this size costs more than what is written there.
Result<FlexBlockMask> make_flex(const Batch& batch, int64_t heads = 0,
                                FlexBlockMask* before = nullptr);

enum class SplashType : uint8_t { boolean, int8, int16, int32 };

// An array in C order, in the bytes and the dtype that Splash picks.
struct SplashArray {
  SplashType type = SplashType::int32;
  std::vector<int64_t> shape;
  std::vector<uint8_t> bytes;

  int64_t item_bytes() const;
  int64_t size() const;
  int64_t at(int64_t i) const;  // i < size()
  bool operator==(const SplashArray&) const = default;
};

// data_next, mask_next and block_mask are [heads or head shards, q blocks, kv
// blocks]: one entry a head shard where all heads of each shard share a mask.
// Shrunk, the last dimension (dkv: the middle one, of each q shard) is the
// widest row's count of live tiles, and at least 1.
struct SplashMaskInfo {
  SplashArray data_next;
  // Absent with partial_mask_blocks.
  std::optional<SplashArray> mask_next;
  SplashArray block_mask;
  // [distinct, block_q, block_kv], dkv: [distinct, block_kv, block_q]. Absent
  // when no tile is partial or the mask is computed in the kernel.
  std::optional<SplashArray> partial_mask_blocks;
  // [q_len] 0, 1, 2, ..., where the mask is computed in the kernel.
  std::optional<SplashArray> q_sequence;
};

struct SplashOptions {
  bool dkv = false;      // process_mask_dkv instead of process_mask
  bool shrink = true;    // shrink_grid
  bool downcast = true;  // downcast_smem_data
  int64_t q_shards = 1;  // q_seq_shards
  int64_t head_shards = 1;
  int64_t heads = 0;  // query heads, a multiple of the plan's; 0: the plan's
  // The kernel has a function of (query, key) for the mask, as Splash has for
  // CausalMask, LocalMask and ChunkedCausalMask: it loads no partial blocks.
  // Otherwise the mask is an array to Splash (NumpyMask, FullMask, `&`, `|`).
  // As there, heads whose masks differ get arrays nevertheless, and a mask that
  // follows from more than positions is refused.
  bool computable = false;
};

// The most bytes of the arrays together with the memory to build them; more is
// an error.
inline constexpr int64_t kMaxSplashBytes = int64_t{1} << 31;

// Splash has no batch in its mask: `batch_row` says which. Heads share a mask
// when it means the same, however it is written. Facts such as documents become
// part of the arrays, so that they skip tiles; Splash's own segment ids, which
// never skip one and hold padding -1 equal to -1, are then not to be given.
// Where Splash has no answer, ours is the one its arrays mean: a mask with no
// partial tile in several q shards, and q shards with no live tile.
Result<SplashMaskInfo> make_splash(const Batch& batch, int64_t batch_row,
                                   const SplashOptions& options);

// The arrays of a run, which are arguments of its compiled program: their sizes
// are ceilings, so that batches under them are compiled for once.
struct SplashRun {
  bool dkv = false;   // as in SplashOptions
  int64_t heads = 0;  // the same
  // Distinct partial tiles that there is room for; 0: their bucket. More are an
  // error.
  int64_t max_blocks = 0;
};

// JAX's, shrunk and in int32, as wide as the request's max_width. mask_next and
// partial_mask_blocks are there even where no tile is partial. Heads whose
// masks differ have whole lists, whatever the ceiling.
Result<SplashMaskInfo> make_splash_run(const Batch& batch, int64_t batch_row,
                                       const SplashRun& run);

// tokamax's: active tiles alone, row by row as its _process_mask has them, in
// lists as long as the request's max_steps. Of dkv a row is one of key tiles,
// and one without a query is a step of class 0, for its gradients are written.
struct TokamaxMaskInfo {
  std::vector<int32_t> mask_next;
  std::vector<int32_t> active_rows;  // -1 beyond the active steps
  std::vector<int32_t> active_cols;  // the same
  std::vector<int32_t> block_mask;   // 0 there
  int64_t num_active_blocks = 0;
  SplashArray partial_mask_blocks;  // int8, as SplashMaskInfo's
};

// All heads share one mask: a batch with several masks is refused, and so are
// heads in `run`.
Result<TokamaxMaskInfo> make_tokamax_run(const Batch& batch, int64_t batch_row,
                                         const SplashRun& run);

// Picks in the layout of index-sparse attention on GPUs: for each query the
// numbers of the key blocks that it attends to, groups of heads behind the
// queries. The mask's blocks(n) says of how many keys a block is: 1 for picks
// of single tokens.
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

// `topk_idxs` is [queries, k], [queries, groups, k], where queries are those of
// all batch rows, one row after another, or [batch, q_len, groups, k]; in C
// order. Numbers count from their batch row's first key, in any order; -1 is an
// unused slot and may stand anywhere. Outside the keys, or twice for a query,
// they are refused: one stack skips them, the next counts a key twice.
Result<TopkPicks> picks_from_topk(Ints topk_idxs,
                                  std::span<const int64_t> shape,
                                  const Request& request);

struct TopkIdxs {
  std::vector<int64_t> shape;  // [batch * q_len, groups, k], no groups where 1
  std::vector<int32_t> values;
};

// The picks that a batch attends with. Those of a router, of a plan file too,
// ascend with -1 at the end.
Result<TopkIdxs> make_topk(const Batch& batch);

// Keys that a forward pass reads, K and V together counted once, summed over
// the lists of a plan.
struct KeyReads {
  int64_t by_query = 0;  // legal pairs: each query reads its own keys
  int64_t needed = 0;    // keys that some query of a tile row sees
  int64_t read = 0;      // keys of the tiles of a tile row

  int64_t extra() const { return read - needed; }
  bool operator==(const KeyReads&) const = default;
};
Result<KeyReads> count_key_reads(const Batch& batch);

// A mask that is whole blocks and nothing else, a byte or a bit each, to both
// worklists.
//
//   BlockLists lists;  // kept: its memory serves every call
//   worklists_of_blocks({cells, heads, rows, columns}, lists);
//
// The lists are for your own kernels. For lanes, which take a Batch, give such
// a mask as picks of `blocks(n)`; the Batch's mask may then name more.

// Which blocks of each list (a head of a batch row) are active: [lists, rows,
// columns] in C order.
struct BlockMask {
  // A byte a block, 0 where it is not active. Packed: a bit a block, lowest
  // first; each row begins at a byte, and the bits behind its columns are 0.
  std::span<const uint8_t> cells;
  int64_t lists = 1;
  int64_t rows = 0;
  int64_t columns = 0;
  bool packed = false;

  int64_t row_bytes() const { return packed ? (columns + 7) / 8 : columns; }
};

// Every entry is of the class full.
struct BlockLists {
  Worklist forward;
  Worklist transposed;
  std::vector<uint64_t> scratch;
};

struct BlockOptions {
  int64_t max_tiles =
      kMaxTiles;           // active blocks of all lists; more is an error
  std::optional<Isa> isa;  // as in CpuOptions
};

// On one thread. On an error the lists are as they were.
Result<void> worklists_of_blocks(const BlockMask& mask, BlockLists& lists,
                                 const BlockOptions& options = {});

// The same blocks as facts, of a mask that names blocks(n): a block is n
// queries and n keys, and `mask` has as many lists as picks have heads, for
// each batch row. A query's picks are those of its block row: 4 bytes for each
// query, head and block of the widest row, so at most kMaxLayoutBytes.
Result<TopkPicks> picks_from_blocks(const BlockMask& mask,
                                    const Request& request);

}  // namespace tessera
