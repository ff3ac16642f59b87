// lanes/mosaic/vector_memory.h: how much of a core's vector memory kernels may
// take, and how many heads and queries fit it at once.
#pragma once

#include <cstdint>
#include <vector>

#include "lanes/mosaic/shape.h"
#include "lanes/mosaic/writer.h"
#include "tessera/dispatch.h"

namespace tessera::mosaic {

// Limits of a kernel's scratch, and the vector memory that its program asks
// for; the rest is the compiler's. Backward kernels were compiled up to their
// limit.
struct VectorRooms {
  int64_t forward = 0, backward = 0, program = 0;
};
constexpr VectorRooms vector_rooms(int64_t core_bytes) {
  return {core_bytes / 8 * 3, core_bytes / 8 * 5, core_bytes / 4 * 3};
}

// The least vector memory that a kernel for a request of these sizes takes:
// with the smallest passes, fetching the shortest way ahead.
int64_t least_vector_bytes(const RequestFeatures& features);
int64_t vector_room(int64_t core_bytes, bool backward);

// Heads that a pass takes at once: the largest number up to `most` that divides
// `heads` and divides, or is a multiple of, `group`, the heads of a kv head.
inline constexpr int64_t kMaxHeadsPerPass = 8;
inline constexpr int64_t kMaxBackwardHeadsPerPass = 4;
int64_t heads_together(int64_t heads, int64_t group, int64_t most);

// All arguments of a kernel of this shape, in order.
std::vector<Argument> arguments_of(const KernelShape& shape, bool backward);
bool fits(const KernelShape& shape, bool backward);
// Sets the heads of a pass, as many as fit. Where backward `may_chunk`, also
// sets chunks of queries if dQ of all does not fit, or if they allow more
// heads.
void take_heads(KernelShape& shape, bool backward, bool may_chunk);

}  // namespace tessera::mosaic
