// tessera/mosaic.h: our own TPU kernels for attention and its gradients,
// emitted as text that the TPU compiler takes (docs/mosaic.md).
//
// One kernel serves every batch of its contract: document ids, counts, offsets,
// exact window bounds and the worklist are arrays that it reads when it runs.
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
  int64_t tiles_per_pass = 4;  // steps of a row taken at a time
  // Passes (backward: columns of tiles) between a copy's start and its use.
  int64_t fetch_ahead = 4;
  RowSum row_sum = RowSum::exact;
  // Why a tile or a logical block smaller than the target's matrix unit may be
  // lowered (tessera/machine.h). Such a one must have a reason, others must
  // not.
  std::optional<std::string> lowering_reason = {};
  // Steps that scalar memory holds at a time; the others wait in HBM. 0: all of
  // them where they fit, else a number that suits.
  int64_t page_steps = 0;
  // Backward: queries of a head whose dQ vector memory holds at a time, in
  // whole tiles. The list comes in chunks of so many queries, or whole if that
  // is all of them. 0: whole, if that fits and lets as many heads run together
  // as chunks would; else as many queries as fit.
  int64_t query_chunk = 0;
  Numbers numbers = Numbers::finite;
};
inline constexpr int64_t kMosaicMaxPageSteps = 65'536;
inline constexpr int64_t kMosaicMaxTilesPerPass = 8;
inline constexpr int64_t kMosaicMaxFetchAhead = 14;
// A tile that suits the kernel, where a request leaves it open.
inline constexpr Tile kMosaicTile = {512, 256};
// The same of the backward kernel, with its options.
inline constexpr Tile kMosaicBackwardTile = {512, 512};
inline constexpr MosaicOptions kMosaicBackward = {1, 1};

// What suits the kernel where a request leaves tile and passes open.
struct MosaicSetting {
  Tile tile = kMosaicTile;
  MosaicOptions options;
  // The table's row that this is from: its queries see so many keys in the
  // mean, up to twice as many. 0: no row suits, and this is the default.
  int64_t keys = 0;
};
// From a table of predicted cycles (docs/mosaic.md). It depends on what a
// contract holds and on `keys_per_query`, how many keys a query sees in the
// mean, to a power of two. Give that once for all batches that a kernel serves.
// 0: as many as the mask leaves; for a mask that names documents or segments
// that is not known, and the default is taken.
MosaicSetting mosaic_setting(const Request& request, const AttentionCall& call,
                             int64_t keys_per_query = 0);
// That mean for one batch; queries of padding count too.
int64_t keys_per_query(const Batch& batch);

struct MosaicKernel {
  std::string text;          // the kernel alone
  std::string program_text;  // StableHLO around it, ready to compile
  // JSON that holds the kernel. Another program hands it to a custom call
  // "tpu_custom_call" of API version 1, with the program's arrays and then the
  // results. "" for a program of shards, which has several calls.
  std::string backend_config;
  PlanContract plan;
  KernelContract contract;

  // What the program's arrays hold. Lengths are in whole tiles; q, k and v
  // beyond the batch's own lengths may be anything, also NaN.
  int64_t batch = 1, q_len = 0, kv_len = 0;
  int64_t steps = 0;
  // If scalar memory does not hold all steps, they lie in HBM, so many in a
  // page (docs/mosaic.md). 0: it holds all.
  int64_t page = 0;
  // Backward: queries of a chunk. 0: the kernel holds dQ of all queries.
  int64_t query_chunk = 0;
  Tile tile;
  Lowering lowering;
  MosaicOptions options;
  AttentionCall call;
  std::string mask;  // with the classes of its window bounds; "; " joins heads'
  int64_t plan_heads = 1;      // each has its own list
  int64_t heads_per_pass = 1;  // as many of one list as suit the tile
  // Room for bitmaps of tiles, which say which pairs are legal where document
  // ids and bounds do not; 0: those do.
  int64_t bitmaps = 0;
  // Of tensors whose dim is no multiple of 128 the custom call has the tokens
  // last, [batch, heads, dim, tokens], as the compiler lays them out anyway;
  // the program around it has the dim last.
  bool tokens_last = false;

  int64_t vector_bytes = 0;  // scratch in vector memory
  int64_t scalar_words = 0;  // scalar arrays

  ShardProgramArrays of_mesh;  // of a program of shards, all arrays
};

// What a kernel takes of a core's vector memory, in bytes. Its scratch equals
// the compiler's own figure. Beside it lie registers that the compiler spills,
// whose bytes only the compiler knows. It refuses a kernel whose scratch and
// spills are together above `limit`.
struct VectorMemory {
  int64_t scratch = 0;
  int64_t room = 0;   // the most that scratch may be here, below the limit
  int64_t limit = 0;  // what the program asks for
};
VectorMemory vector_memory(const MosaicKernel& kernel);

// The forward kernel; where `call` is backward, the kernel of the gradients;
// where it asks for sink telemetry, that kernel. Refuses types other than bf16
// and f32, and head dims other than 64, 128, 192 and 256 (values may have
// another of these). `present` only says which facts there are, and the heads
// of picks. `target`: "v6e" or "v6e:1x1".
Result<MosaicKernel> make_mosaic_kernel(const Request& request,
                                        const Facts& present,
                                        const AttentionCall& call,
                                        const std::string& target,
                                        const MosaicOptions& options = {});

// The program's inputs for one batch, beside the tensors. Steps are those of
// the kernel's direction: backward the transposed list.
struct MosaicArrays {
  std::vector<int32_t> steps;  // [steps]; 0 beyond the batch's own
  // [batch * plan_heads + 1]; with pages what each holds, then how many rows
  // (backward columns) each list has. In chunks each chunk is a list, and four
  // columns of each follow: its first, its end, the first that no chunk before
  // has, and the end of those that no chunk after has.
  std::vector<int32_t> range;
  std::vector<int32_t> bounds;  // [2 + batch]: of key - position, then offsets
  // [batch, q_len]; -2: sees nothing; -3: is not there
  std::vector<int32_t> q_ids;
  std::vector<int32_t> kv_ids;  // [batch, kv_len]; -1: nothing sees it
  // Where the kernel has bitmaps: the number of each step's, and all of them.
  // Bit j of word [r, q] is key j rows + r of the tile, rows = tile.kv / 32, or
  // tile.kv / 16 where 256 does not divide that side.
  std::vector<int32_t> bits_of;  // [steps]
  std::vector<int32_t> bits;     // [bitmaps, rows, tile.q]
};
// A batch that the kernel has no room for is an error that names what is too
// small.
Result<MosaicArrays> make_mosaic_arrays(const Batch& batch,
                                        const MosaicKernel& kernel);

// One of them as the program takes it: int32.
struct MosaicArray {
  std::string_view name;
  std::vector<int64_t> shape;
  std::vector<int32_t> values;
};
// Those that the kernel has, in the order in which its program takes them.
std::vector<MosaicArray> named_arrays(const MosaicKernel& kernel,
                                      MosaicArrays arrays);

// The program of all shards of a batch (tessera/shard.h), whose attention on
// each device is calls of the kernel, over the device's own tiles and those
// that the rounds bring, some of them while tiles travel (docs/shard.md).
// Numbers of tiles are local there and tell no position, so that bitmaps say
// which pairs are legal, whatever the mask. Its `program` takes the arrays that
// make_mosaic_shard_arrays() gives, then sink_logits, q, k and v (backward also
// out, dout, lse and dlse) with the tokens of shard 0 first, and gives out and
// lse (backward dq, dk, dv and of each device dsink_logits); sizes and arrays
// are those of one device.
// dK and dV of tiles travel and are added in float32.
Result<MosaicKernel> make_mosaic_shards(const Batch& batch,
                                        const Shards& shards,
                                        const AttentionCall& call,
                                        const std::string& target,
                                        const MosaicOptions& options = {});
// The integers of that program for all devices, in its order. The part of
// device s begins at s times a device's size.
Result<std::vector<MosaicArray>> make_mosaic_shard_arrays(
    const Batch& batch, const Shards& shards, const MosaicKernel& kernel);

// The same, somewhere else.
struct MosaicArrayView {
  std::string_view name;
  std::span<const int64_t> shape;
  std::span<const int32_t> values;
};
MosaicArrayView view_of(const MosaicArray& array);
// [arrays, 4]: a digest of 128 bits for each array, of its values and of what
// they are for. They go with arrays that leave the library.
std::vector<int32_t> mosaic_digests(const MosaicKernel& kernel,
                                    std::span<const MosaicArrayView> arrays);
// Ask before the kernel reads the arrays, since it checks no bounds: whether
// they are unchanged named_arrays of a batch and of this kernel.
Result<void> check_mosaic_arrays(const MosaicKernel& kernel,
                                 std::span<const MosaicArrayView> arrays,
                                 std::span<const int32_t> digests);

}  // namespace tessera
