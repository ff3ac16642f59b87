// tessera/mosaic.h: a TPU kernel of its own for forward attention, emitted as
// text that the TPU compiler takes (docs/mosaic.md).
//
// One kernel serves every batch of its contract: document ids, counts, offsets,
// exact window bounds and the worklist are arrays that it reads when it runs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/attention.h"
#include "tessera/batch.h"
#include "tessera/contract.h"
#include "tessera/facts.h"
#include "tessera/layouts.h"
#include "tessera/plan.h"
#include "tessera/result.h"

namespace tessera {

struct MosaicOptions {
  int64_t tiles_per_pass = 4;  // steps of a row taken at a time
  int64_t fetch_ahead = 4;     // passes between a copy's start and its use
};
inline constexpr int64_t kMosaicMaxTilesPerPass = 8;
inline constexpr int64_t kMosaicMaxFetchAhead = 14;
// A tile that suits the kernel, where a request leaves it open.
inline constexpr Tile kMosaicTile = {512, 256};

struct MosaicKernel {
  std::string text;     // the kernel alone
  std::string program;  // StableHLO around it, ready to compile
  PlanContract plan;
  KernelContract contract;

  // What the program's arrays hold. Lengths are in whole tiles; all of q, k and
  // v beyond the batch's own lengths may be anything, NaN too.
  int64_t batch = 1, q_len = 0, kv_len = 0;
  int64_t steps = 0;
  Tile tile;
  MosaicOptions options;
  std::string mask;  // with the classes of its window bounds

  int64_t vector_bytes = 0;  // scratch in vector memory
  int64_t scalar_words = 0;  // scalar arrays
};

// Refuses what the kernel cannot do: masks that are not causal, window,
// documents and segments joined by &, other types than bf16, head dims other
// than 128, softcap. Of `present` only which facts there are is
// read. `target`: "v6e" or "v6e:1x1".
Result<MosaicKernel> make_mosaic_kernel(const Request& request,
                                        const Facts& present,
                                        const AttentionShape& shape,
                                        Dtype dtype, const std::string& target,
                                        const MosaicOptions& options = {});

// The program's first three and last two inputs for one batch.
struct MosaicArrays {
  std::vector<int32_t> steps;   // [steps]; 0 beyond the batch's own
  std::vector<int32_t> range;   // [batch + 1]
  std::vector<int32_t> bounds;  // [2 + batch]: of key - position, then offsets
  std::vector<int32_t> q_ids;   // [batch, q_len]; -2: sees nothing
  std::vector<int32_t> kv_ids;  // [batch, kv_len]; -1: seen by nothing
};
// A batch that the kernel has no room for is an error that names what is too
// small.
Result<MosaicArrays> make_mosaic_arrays(const Batch& batch,
                                        const MosaicKernel& kernel);

}  // namespace tessera
