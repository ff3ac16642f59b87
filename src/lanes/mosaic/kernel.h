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

struct PlannedKernel {
  MosaicKernel kernel;  // without `text` and what is made of it
  KernelShape shape;
};

// As make_mosaic_kernel.
Result<PlannedKernel> plan_kernel(const Request& request, const Facts& present,
                                  const AttentionCall& call,
                                  const std::string& target,
                                  const MosaicOptions& options);

// Whether its scratch fits the target's vector memory, with as few heads a pass
// as that takes; backward with dQ of all queries, or `in_chunks` of them. True
// too where check_asked() refuses the call or its options; false where no
// kernel has the lengths, or the plan's heads.
bool fits_vector_memory(const Request& request, const Facts& present,
                        const AttentionCall& call, const std::string& target,
                        const MosaicOptions& options, bool in_chunks = false);
// The chunk of queries of the backward kernel that plan_kernel makes; 0: it
// has none.
int64_t query_chunk_of(const Request& request, const Facts& present,
                       const AttentionCall& call, const std::string& target,
                       const MosaicOptions& options);

// The kernel of each device of a mesh, over its tiles in local numbers; its
// contract is left open. `in_parts`: it is called several times, for some of
// the columns each. Backward it comes in chunks of queries where these are
// said, or where all of them do not fit.
Result<PlannedKernel> plan_shard_kernel(
    const Batch& batch, const Shards& shards, const AttentionCall& call,
    const std::string& target, const MosaicOptions& options, bool in_parts);
// The call of the kernel of sink telemetry, which a call that says so has
// beside its passes.
AttentionCall telemetry_alone(AttentionCall call);
// "forward", "backward" or "sinks", as contracts and receipts have it.
std::string direction_of(const AttentionCall& call);
// `sharding`: how its program's arrays lie on a mesh.
KernelContract contract_of(const PlannedKernel& planned,
                           const std::string& target,
                           const std::string& sharding = "none");

std::string_view name_of(const PlannedKernel& planned);  // "tessera_forward"
std::string text_of(const PlannedKernel& planned);
// What a program around it hands to it and has from it, of tensors the dim
// last; and that as its call takes and gives it, of some the tokens last.
CallArrays arrays_of(const PlannedKernel& planned);
CallArrays operands_of(const PlannedKernel& planned);

struct KernelText {
  std::string text, program_text;
};
KernelText write_kernel(const PlannedKernel& planned);

}  // namespace tessera::mosaic
