// lanes/mosaic/kernel.h: a kernel in two steps: what it is, which gives its
// key, and then its text, which nobody needs who has the compiled program.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lanes/mosaic/program.h"
#include "lanes/mosaic/shape.h"
#include "tessera/dispatch.h"
#include "tessera/mosaic.h"

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

struct PlannedKernel {
  MosaicKernel kernel;  // without `text` and `program`
  KernelShape shape;
};

// As make_mosaic_kernel.
Result<PlannedKernel> plan_kernel(const Request& request, const Facts& present,
                                  const AttentionCall& call,
                                  const std::string& target,
                                  const MosaicOptions& options);

// Whether its scratch fits the target's vector memory, with as few heads a pass
// as that takes; backward with dQ of all queries, or `in_chunks` of them. True
// too where plan_kernel refuses it for something else.
bool fits_vector_memory(const Request& request, const Facts& present,
                        const AttentionCall& call, const std::string& target,
                        const MosaicOptions& options, bool in_chunks = false);

// The kernel of each device of a mesh, over its tiles in local numbers; its
// contract is left open. `in_parts`: it is
// called several times, for some of the columns each.
Result<PlannedKernel> plan_shard_kernel(
    const Batch& batch, const Shards& shards, const AttentionCall& call,
    const std::string& target, const MosaicOptions& options, bool in_parts);
// "forward", "backward" or "sinks", as contracts and receipts have it.
std::string direction_of(const AttentionCall& call);
// `sharding`: how its program's arrays lie on a mesh.
KernelContract contract_of(const PlannedKernel& planned,
                           const std::string& target,
                           const std::string& sharding = "none");

std::string_view name_of(const PlannedKernel& planned);  // "tessera_forward"
std::string text_of(const PlannedKernel& planned);
// What a program around it hands to it and has from it.
CallArrays arrays_of(const PlannedKernel& planned);

struct KernelText {
  std::string text, program;
};
KernelText write_kernel(const PlannedKernel& planned);

}  // namespace tessera::mosaic
