// lanes/mosaic/vector_memory.h: what kernels may take of a core's vector
// memory, and how many heads and queries that holds at once.
#pragma once

#include <cstdint>
#include <vector>

#include "lanes/mosaic/shape.h"
#include "lanes/mosaic/writer.h"
#include "tessera/dispatch.h"

namespace tessera::mosaic {

// What a kernel's scratch may take of a core's vector memory, and what its
// program asks for: the compiler's own share is left. The backward kernel's was
// compiled up to its edge.
struct VectorRooms {
  int64_t forward = 0, backward = 0, program = 0;
};
constexpr VectorRooms vector_rooms(int64_t core_bytes) {
  return {core_bytes / 8 * 3, core_bytes / 8 * 5, core_bytes / 4 * 3};
}

// What a kernel takes of it at least, by the sizes of a request alone: with the
// smallest passes and the shortest way ahead.
int64_t least_vector_bytes(const RequestFeatures& features);
int64_t vector_room(int64_t core_bytes, bool backward);

// The kernels take several heads at once: the most of them, up to
// `most`, that make up whole passes of all and share keys, `group` heads each,
// so that those of a pass are all of some keys' or some of one's.
inline constexpr int64_t kMaxHeadsPerPass = 8;
inline constexpr int64_t kMaxBackwardHeadsPerPass = 4;
int64_t heads_together(int64_t heads, int64_t group, int64_t most);

// Of a kernel of this shape, in their order.
std::vector<Argument> arguments_of(const KernelShape& shape, bool backward);
bool fits(const KernelShape& shape, bool backward);
// Heads of a pass, as many as fit; where backward `may_chunk`, in chunks of
// queries if all of them do not fit, or if more heads go together so.
void take_heads(KernelShape& shape, bool backward, bool may_chunk);

}  // namespace tessera::mosaic
