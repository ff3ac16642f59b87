// tessera/mosaic.h: Tessera's TPU kernels for attention and its gradients,
// emitted as text for the TPU compiler (docs/mosaic.md).
//
// One kernel serves every batch of its contract: document ids, counts, offsets,
// exact window bounds and the worklist are arrays that it reads at run time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/attention.h"
#include "tessera/batch.h"
#include "tessera/facts.h"
#include "tessera/layouts.h"
#include "tessera/machine.h"
#include "tessera/plan.h"
#include "tessera/result.h"
#include "tessera/shard.h"

namespace tessera {

struct MosaicOptions {
  int64_t tiles_per_pass = 4;  // steps of a row that one pass computes
  // Passes (backward: columns of tiles) from the start of a copy to its use.
  int64_t fetch_ahead = 4;
  RowSum row_sum = RowSum::exact;
  // The reason for a tile or a logical block smaller than the target's matrix
  // unit (tessera/machine.h): required for such a tile or block, refused else.
  std::optional<std::string> lowering_reason = {};
  // Steps of a page, the part of the list that is in scalar memory at a time;
  // the list is then in HBM. 0: all steps if they fit, else a suitable number.
  int64_t page_steps = 0;
  // Backward: queries of a chunk, in whole tiles. Vector memory holds dQ of one
  // head for one chunk at a time, and the list is cut into chunks unless one
  // chunk has all queries. 0: no cut, if all queries fit and as many heads run
  // together as with chunks; else as many queries as fit.
  int64_t query_chunk = 0;
  Numbers numbers = Numbers::finite;
};
inline constexpr int64_t kMosaicMaxPageSteps = 65'536;
inline constexpr int64_t kMosaicMaxTilesPerPass = 8;
inline constexpr int64_t kMosaicMaxFetchAhead = 14;
// The default tile of the forward kernel, if a request names no tile.
inline constexpr Tile kMosaicTile = {512, 256};
// The default tile and options of the backward kernel.
inline constexpr Tile kMosaicBackwardTile = {512, 512};
inline constexpr MosaicOptions kMosaicBackward = {1, 1};

// The tile and options for a kernel whose request does not fix them.
struct MosaicSetting {
  Tile tile = kMosaicTile;
  MosaicOptions options;
  // The row of the table that was used: it is for queries that see `keys` to 2
  // * `keys` keys on average. 0: no row applies; this is the default.
  int64_t keys = 0;
};
// The setting from a table of predicted cycles (docs/mosaic.md). It depends on
// the terms of the contract and on `keys_per_query`, the mean number of keys
// that a query sees, to a power of two. Pass one value for all batches that a
// kernel serves. 0: computed from the mask; for a mask that names documents or
// segments it is unknown, and the default setting is returned.
MosaicSetting mosaic_setting(const Request& request, const AttentionCall& call,
                             int64_t keys_per_query = 0);
// The mean number of keys per query of one batch; padding queries count too.
int64_t keys_per_query(const Batch& batch);

struct MosaicKernel {
  std::string text;          // the kernel alone
  std::string program_text;  // StableHLO around it, ready to compile
  // JSON with the kernel, for another program: the backend_config of a custom
  // call "tpu_custom_call" of API version 1, whose operands are the program's
  // arrays and then the results. "" for a program of shards, which has several
  // calls.
  std::string backend_config;
  PlanContract plan;
  KernelContract contract;

  // Sizes of the program's arrays. Lengths are whole tiles; q, k and v beyond
  // the batch's lengths may have any value, NaN included.
  int64_t batch = 1, q_len = 0, kv_len = 0;
  int64_t steps = 0;
  // Steps of a page, if the list is in HBM (docs/mosaic.md). 0: scalar memory
  // holds all steps.
  int64_t page = 0;
  // Backward: queries of a chunk. 0: no chunks; the kernel holds all of dQ.
  int64_t query_chunk = 0;
  Tile tile;
  Lowering lowering;
  MosaicOptions options;
  AttentionCall call;
  // The mask with window bounds replaced by their classes. "; " separates masks
  // of plan heads.
  std::string mask;
  int64_t plan_heads = 1;      // each has its own list
  int64_t heads_per_pass = 1;  // heads of one list that run together
  // Room for bitmaps of tiles, which hold the legal pairs if document ids and
  // bounds do not determine them. 0: they do, and there are no bitmaps.
  int64_t bitmaps = 0;
  // The custom call has tensors whose dim is no multiple of 128 with the tokens
  // last, [batch, heads, dim, tokens], which is the compiler's own layout for
  // them. In the program around the call the dim is last.
  bool tokens_last = false;

  int64_t vector_bytes = 0;  // scratch in vector memory
  int64_t scalar_words = 0;  // words of the scalar arrays

  ShardProgramArrays of_mesh;  // all arrays, of a program of shards
};

// A kernel's use of a core's vector memory, in bytes. `scratch` equals the
// compiler's figure. The compiler also spills registers to vector memory, and
// only the compiler knows how many bytes. It refuses a kernel whose scratch and
// spills exceed `limit` together.
struct VectorMemory {
  int64_t scratch = 0;
  int64_t room = 0;   // the most scratch that Tessera allows; below `limit`
  int64_t limit = 0;  // the limit that the program requests
};
VectorMemory vector_memory(const MosaicKernel& kernel);

// Makes the forward kernel, or the kernel of the gradients if call.backward is
// set, or the telemetry kernel if call.sink_telemetry is set. Refuses types
// other than bf16 and f32, and head dims other than 64, 128, 192 and 256
// (v_head_dim may be another of these). Of `present` only the presence of each
// fact and the heads of picks are read. `target` is "v6e" or "v6e:1x1".
Result<MosaicKernel> make_mosaic_kernel(const Request& request,
                                        const Facts& present,
                                        const AttentionCall& call,
                                        const std::string& target,
                                        const MosaicOptions& options = {});

// The program's integer inputs for one batch. The steps are those of the
// forward list; backward those of the transposed list.
struct MosaicArrays {
  std::vector<int32_t> steps;  // [steps]; 0 after the batch's steps
  // [batch * plan_heads + 1]: the start of each list, then the end. With pages:
  // the steps of each page, then the number of rows (backward: columns) of each
  // list. With chunks each chunk is a list, and four columns for each chunk
  // follow: its first, its end, the first that no earlier chunk has, and the
  // end of those that no later chunk has.
  std::vector<int32_t> range;
  // [2 + batch]: least and most of key - position, then each row's offset.
  std::vector<int32_t> bounds;
  // [batch, q_len]; -2: the query sees nothing; -3: there is no such query
  std::vector<int32_t> q_ids;
  std::vector<int32_t> kv_ids;  // [batch, kv_len]; -1: no query sees the key
  // If the kernel has bitmaps: the number of each step's bitmap, and all
  // bitmaps. Bit j of word [r, q] is key j * rows + r of the tile. rows is
  // tile.kv / 32, or tile.kv / 16 if tile.kv is no multiple of 256.
  std::vector<int32_t> bits_of;  // [steps]
  std::vector<int32_t> bits;     // [bitmaps, rows, tile.q]
};
// If the batch does not fit the kernel, the error names the capacity that is
// too small.
Result<MosaicArrays> make_mosaic_arrays(const Batch& batch,
                                        const MosaicKernel& kernel);

// One int32 argument of the program.
struct MosaicArray {
  std::string_view name;
  std::vector<int64_t> shape;
  std::vector<int32_t> values;
};
// The arrays that the kernel has, in the order of its program's arguments.
std::vector<MosaicArray> named_arrays(const MosaicKernel& kernel,
                                      MosaicArrays arrays);

// The program of all shards of a batch (tessera/shard.h). On each device it
// calls the kernel for the device's own tiles and for those that the rounds
// bring; some calls run while tiles are sent (docs/shard.md). Tile numbers are
// local there and give no position, so bitmaps hold the legal pairs for every
// mask. program_text takes the arrays of make_mosaic_shard_arrays(), then
// sink_logits, q, k and v (backward also out, dout, lse and dlse) with the
// tokens of shard 0 first. It returns out and lse (backward dq, dk, dv and each
// device's dsink_logits). The sizes in the MosaicKernel are those of one
// device. dK and dV of tiles are sent and added in float32.
Result<MosaicKernel> make_mosaic_shards(const Batch& batch,
                                        const Shards& shards,
                                        const AttentionCall& call,
                                        const std::string& target,
                                        const MosaicOptions& options = {});
// The integer arguments of that program for all devices, in its order. The part
// of device s begins at s * (size on one device).
Result<std::vector<MosaicArray>> make_mosaic_shard_arrays(
    const Batch& batch, const Shards& shards, const MosaicKernel& kernel);

// A view of a MosaicArray.
struct MosaicArrayView {
  std::string_view name;
  std::span<const int64_t> shape;
  std::span<const int32_t> values;
};
MosaicArrayView view_of(const MosaicArray& array);
// [arrays, 4]: for each array a 128-bit digest of its values and of the kernel
// that they are for. A caller keeps the digests with arrays that it passes
// elsewhere.
std::vector<int32_t> mosaic_digests(const MosaicKernel& kernel,
                                    std::span<const MosaicArrayView> arrays);
// Checks that the arrays are unchanged results of named_arrays() for this
// kernel. Call this before the kernel reads arrays from elsewhere: it checks no
// bounds.
Result<void> check_mosaic_arrays(const MosaicKernel& kernel,
                                 std::span<const MosaicArrayView> arrays,
                                 std::span<const int32_t> digests);

}  // namespace tessera
