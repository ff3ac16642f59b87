// lanes/mosaic/forward.h: the TPU kernel of forward attention, as text.
#pragma once

#include <cstdint>
#include <string>

namespace tessera::mosaic {

// Everything that is fixed when the kernel is compiled. Lengths are what the
// arrays hold: whole blocks, whatever the batch fills of them.
struct ForwardShape {
  int64_t batch = 1;
  int64_t heads = 1;
  int64_t kv_heads = 1;
  int64_t q_len = 0;
  int64_t kv_len = 0;
  int64_t block_q = 512;  // the plan's tile
  int64_t block_kv = 256;
  int64_t tiles_per_pass = 4;
  int64_t fetch_ahead = 4;  // passes between a copy's start and its use
  int64_t steps = 0;        // that scalar memory has room for
  double scale = 1;
  bool has_low = false;   // key - position >= bounds[0]
  bool has_high = false;  // key - position <= bounds[1]
};

inline constexpr int64_t kLanes = 128;
inline constexpr int64_t kHeadDim = 128;
// Of bounds: low, high, then the offset of each batch row.
inline constexpr int64_t kBoundsHead = 2;

std::string forward_kernel(const ForwardShape& shape);

// What the kernel asks of the core's memories.
int64_t forward_vector_bytes(const ForwardShape& shape);
int64_t forward_scalar_words(const ForwardShape& shape);

}  // namespace tessera::mosaic
