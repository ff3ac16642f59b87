// tessera/splash.h: a plan as JAX Splash attention's MaskInfo arrays.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/plan.h"

namespace tessera {

// An integer array with the dtype Splash would pick: 1, 2 or 4 byte signed.
struct SplashArray {
  std::vector<int64_t> shape;
  int64_t item_bytes = 4;
  std::vector<int32_t> values;
};

struct SplashMaskInfo {
  std::optional<SplashArray> data_next;
  std::optional<SplashArray> mask_next;
  SplashArray block_mask;
  // Booleans [distinct, block_q, block_kv]; absent when no tile is partial.
  std::optional<SplashArray> partial_mask_blocks;
};

struct SplashOptions {
  bool dkv = false;    // process_mask_dkv instead of process_mask
  bool shrink = true;  // shrink_grid
  int64_t q_shards = 1;
  int64_t head_shards = 1;
  int64_t heads = 1;  // query heads, at least the plan's
};

// Splash has no batch in its mask: `batch_row` says which.
Result<SplashMaskInfo> make_splash(const Request& request, const Facts& facts,
                                   const Plan& plan, int64_t batch_row,
                                   const SplashOptions& options);

}  // namespace tessera
