// tessera/splash.h: a plan as JAX Splash attention's MaskInfo arrays, byte for
// byte what its process_mask and process_mask_dkv return for the same mask.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/batch.h"

namespace tessera {

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

// The arrays together with the memory to build them; above is a typed error.
inline constexpr int64_t kMaxSplashBytes = int64_t{1} << 31;

// Splash has no batch in its mask: `batch_row` says which. Heads share a mask
// when it means the same, however it is written. Facts such as documents become
// part of the arrays, so that they skip tiles; Splash's own segment ids, which
// never skip one and hold padding -1 equal to -1, are then not to be given.
// Where Splash has no answer, ours is the one its arrays mean: a mask with no
// partial tile in several q shards, and q shards with no live tile.
Result<SplashMaskInfo> make_splash(const Batch& batch, int64_t batch_row,
                                   const SplashOptions& options);

}  // namespace tessera
