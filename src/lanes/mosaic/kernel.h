// lanes/mosaic/kernel.h: kernels in two steps: plan_kernel gives the shape and
// the contract key, write_kernel the text, which is not needed where the
// compiled program is at hand.
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
  MosaicKernel kernel;  // without `text` and what is made from it
  KernelShape shape;
};

// As make_mosaic_kernel, without writing the text.
Result<PlannedKernel> plan_kernel(const Request& request, const Facts& present,
                                  const AttentionCall& call,
                                  const std::string& target,
                                  const MosaicOptions& options);

// Whether the kernel's scratch fits the target's vector memory, with fewer
// heads a pass if needed. Backward keeps dQ of all queries, or with `in_chunks`
// may keep dQ of a chunk. Also true where check_asked() refuses the call or its
// options; false where no kernel has such lengths or plan heads.
bool fits_vector_memory(const Request& request, const Facts& present,
                        const AttentionCall& call, const std::string& target,
                        const MosaicOptions& options, bool in_chunks = false);
// Queries of a chunk in plan_kernel's backward kernel; 0: no chunks.
int64_t query_chunk_of(const Request& request, const Facts& present,
                       const AttentionCall& call, const std::string& target,
                       const MosaicOptions& options);

// The kernel that each device of a mesh runs, over the device's tiles by local
// number; its contract is not set here. `in_parts`: the kernel is called
// several times, each time for some of the columns. Backward takes chunks of
// queries where the options set them or where dQ of all queries does not fit.
Result<PlannedKernel> plan_shard_kernel(
    const Batch& batch, const Shards& shards, const AttentionCall& call,
    const std::string& target, const MosaicOptions& options, bool in_parts);
// The call for the sink telemetry kernel, which runs beside the passes of a
// call that asks for sink telemetry.
AttentionCall telemetry_alone(AttentionCall call);
// "forward", "backward" or "sinks", as contracts and receipts have it.
std::string direction_of(const AttentionCall& call);
// `sharding`: how the program's arrays lie on a mesh.
KernelContract contract_of(const PlannedKernel& planned,
                           const std::string& target,
                           const std::string& sharding = "none");

std::string_view name_of(const PlannedKernel& planned);  // "tessera_forward"
std::string text_of(const PlannedKernel& planned);
// arrays_of: inputs and results as the program around the kernel has them,
// tensors with the dim last. operands_of: the same arrays as the custom call
// has them, some tensors with the tokens last.
CallArrays arrays_of(const PlannedKernel& planned);
CallArrays operands_of(const PlannedKernel& planned);

struct KernelText {
  std::string text, program_text;
};
KernelText write_kernel(const PlannedKernel& planned);

}  // namespace tessera::mosaic
