// fit/mesh_pass.cc: the memory of a mesh's program on one of its devices.
#include <algorithm>
#include <utility>

#include "fit/mesh_arrays.h"
#include "fit/mesh_scratch.h"
#include "fit/parts.h"
#include "lanes/lane.h"
#include "lanes/mosaic/shards.h"
#include "lanes/tensors.h"
#include "lanes/xla/planned.h"
#include "lanes/xla/shard_program.h"
#include "lanes/xla/shard_shape.h"

namespace tessera {
namespace fit {
namespace {

using xla::ShardArray;

// Counters of a program with our kernels.
constexpr int64_t kKernelCounters = 32 * kCounter;

// What is added in lane xla. With ragged exchanges libtpu took up to 22% more
// than all that is counted, for unknown reasons; with gathers 66 kB more
// (docs/memory.md).
constexpr int64_t kRaggedMargin = 4;
constexpr int64_t kGatherMargin = 8 * kCounter;

MemoryPart margin_of(const MeshProgram& program, const PassMemory& counted) {
  MemoryPart out = {"margin of exchanges", MemoryKind::scratch};
  if (program.kernel ||
      !std::ranges::any_of(senders(program), &Traveller::comes)) {
    return out;
  }
  if (is_ragged(program)) out.bytes = counted.total() / kRaggedMargin;
  if (program.frame.columns.gathers()) out.bytes = kGatherMargin;
  return out;
}

Result<std::vector<MemoryPart>> parts_of(
    const std::vector<ShardArray>& arrays) {
  std::vector<MemoryPart> out;
  for (const ShardArray& a : arrays) {
    const xla::Type& type = a.part.type;
    auto part = part_of(a.part.name, kind_of(a.part.name),
                        xla::dtype_of(type.element), type.dims);
    if (!part) return part.error();
    out.push_back(std::move(*part));
  }
  return out;
}

Result<mosaic::ShardKernel> kernel_of(const MeshFitCall& asked,
                                      const Shards& shards, bool backward) {
  const AttentionCall call = lanes::one_direction(asked.call, backward);
  const Batch& batch = *asked.batch;
  auto fitted =
      mosaic::fit_shards(batch, shards, call, asked.chip,
                         {asked.lowering_reason, asked.numbers, asked.row_sum},
                         backward ? asked.query_chunk : 0);
  if (!fitted) return fitted.error();
  return std::move(fitted->kernel);
}

// What one call leaves to the next of rows that several calls have, in float32.
MemoryPart so_far(const mosaic::ShardKernel& kernel) {
  MemoryPart out = {"rows between calls", MemoryKind::scratch};
  for (const mosaic::Argument& a : mosaic::arrays_of(kernel.planned).results) {
    if (!mosaic::is_kept(a.name) || mosaic::is_of_chunks(a.name)) continue;
    out.bytes = device_bytes(Dtype::f32, a.type.shape);
  }
  return out;
}

// Bytes that a call keeps of its columns from one chunk of queries to the next.
int64_t between_chunks(const mosaic::ShardCall& call) {
  int64_t out = 0;
  for (const mosaic::Argument& a : mosaic::arrays_of(call.kernel).results) {
    if (!mosaic::is_of_chunks(a.name)) continue;
    out += device_bytes(Dtype::f32, a.type.shape);
  }
  return out;
}

VectorMemory most_of(const mosaic::ShardKernel& kernel) {
  VectorMemory out;
  for (const mosaic::ShardCall& call : kernel.calls) {
    const VectorMemory of = vector_memory(call.kernel.kernel);
    if (of.scratch > out.scratch) out = of;
  }
  return out;
}

Moment moment_of(mosaic::Turn turn) {
  if (turn == mosaic::Turn::early) return in_exchange;
  return turn == mosaic::Turn::last ? at_home : in_attend;
}

void add_chunks(const mosaic::ShardKernel& kernel, MeshProgram& to) {
  for (const mosaic::ShardCall& call : kernel.calls) {
    const int64_t bytes = between_chunks(call);
    to.between_chunks[moment_of(call.turn)] += bytes;
    if (bytes > 0) to.counters += kKernelCounters;
  }
}

Result<MeshProgram> program_of(const MeshFitCall& asked, const Shards& shards,
                               const Chip& chip, bool backward) {
  MeshProgram out;
  out.backward = backward;
  if (asked.lane == LaneId::mosaic) {
    auto kernel = kernel_of(asked, shards, backward);
    if (!kernel) return kernel.error();
    out.arrays = mosaic::arrays_of(*kernel);
    out.in_turns = kernel->calls.size() > 1;
    if (kernel->planned.shape.in_parts) out.handed_on = so_far(*kernel);
    out.counters = kKernelCounters;
    add_chunks(*kernel, out);
    out.vector_memory = most_of(*kernel);
    out.frame = std::move(kernel->frame);
    out.kernel = true;
    return out;
  }
  auto shape =
      xla::shard_shape(*asked.batch, shards,
                       lanes::one_direction(asked.call, backward), backward);
  if (!shape) return shape.error();
  auto lowering = xla::lower_on(shape->local, chip, asked.lowering_reason);
  if (!lowering) return lowering.error();
  out.arrays = {xla::shard_arguments(*shape), xla::shard_results(*shape)};
  auto attends = xla_scratch(shape->local, chip);
  if (!attends) return attends.error();
  out.attends = std::move(*attends);
  out.counters = out.attends.back().bytes;
  out.attends.pop_back();
  out.frame = std::move(*shape);
  return out;
}

Result<PassMemory> mesh_pass(const MeshFitCall& asked, const Shards& shards,
                             const Chip& chip, bool backward) {
  auto program = program_of(asked, shards, chip, backward);
  if (!program) return program.error();
  auto arguments = parts_of(program->arrays.arguments);
  if (!arguments) return arguments.error();
  auto outputs = parts_of(program->arrays.results);
  if (!outputs) return outputs.error();
  PassMemory out{backward, std::move(*arguments), std::move(*outputs), {}};
  out.vector_memory = program->vector_memory;
  out.outputs.push_back(table_of(chip, out.outputs.size()));
  out.scratch = program->kernel ? kernel_mesh_scratch(*program, chip)
                                : xla_mesh_scratch(*program, chip);
  if (MemoryPart margin = margin_of(*program, out); margin.bytes > 0) {
    out.scratch.push_back(std::move(margin));
  }
  return out;
}

Result<Shards> shards_of(const MeshFitCall& asked) {
  if (auto e = check_lane(asked.lane, asked.call); !e) return e.error();
  auto ok = lanes::check_call("fit", lanes::PlanSizes::of(asked.batch->plan()),
                              asked.call);
  if (!ok) return ok.error();
  ShardOptions options = lanes::options_for(asked.options, asked.call);
  options.for_tpu = true;
  return make_shards(*asked.batch, asked.mesh, options);
}

}  // namespace

Result<MeshArrays> mesh_arrays(const MeshFitCall& asked, const Shards& shards,
                               bool backward) {
  if (asked.lane == LaneId::xla) {
    auto shape =
        xla::shard_shape(*asked.batch, shards,
                         lanes::one_direction(asked.call, backward), backward);
    if (!shape) return shape.error();
    return MeshArrays{xla::program_arrays(*shape),
                      xla::shard_fingerprint(*shape), 0};
  }
  auto kernel = kernel_of(asked, shards, backward);
  if (!kernel) return kernel.error();
  return MeshArrays{
      xla::program_arrays(kernel->frame, mosaic::arrays_of(*kernel)),
      kernel->specs, kernel->planned.kernel.query_chunk};
}

}  // namespace fit

Result<Budget> make_budget(const MeshFitCall& asked) {
  auto chip = find_chip(asked.chip);
  if (!chip) return chip.error();
  auto shards = fit::shards_of(asked);
  if (!shards) return shards.error();
  auto forward = fit::mesh_pass(asked, *shards, *chip, false);
  if (!forward) return forward.error();
  Budget out{*chip, std::move(*forward), {}, {}};
  if (!asked.call.backward) return out;
  auto backward = fit::mesh_pass(asked, *shards, *chip, true);
  if (!backward) return backward.error();
  out.backward = std::move(*backward);
  return out;
}

Result<std::string> program_text(const MeshFitCall& asked, bool backward) {
  auto shards = fit::shards_of(asked);
  if (!shards) return shards.error();
  if (asked.lane == LaneId::xla) {
    return program_text(*asked.batch, *shards,
                        lanes::one_direction(asked.call, backward), backward);
  }
  auto kernel = fit::kernel_of(asked, *shards, backward);
  if (!kernel) return kernel.error();
  return mosaic::program_text(*kernel);
}

}  // namespace tessera
