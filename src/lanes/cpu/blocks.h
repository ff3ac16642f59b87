// lanes/cpu/blocks.h: the forward pass by blocks of queries.
#pragma once

#include <span>

#include "lanes/cpu/cpu.h"
#include "lanes/cpu/work.h"
#include "tessera/attention.h"

namespace tessera::cpu {

// Checks the arguments and returns the instruction set the call will run on.
Result<Isa> check_call(const CpuWork::State& work, const AttentionShape& shape,
                       const ForwardTensors& tensors,
                       const CpuOptions& options);

// The arguments must have been checked. `entropy`: [batch, heads, q_len], or
// empty if not wanted; the other outputs have the same bits either way.
Result<CpuRun> run_blocks(const CpuWork::State& work,
                          const AttentionShape& shape,
                          const ForwardTensors& tensors,
                          std::span<float> entropy, const CpuOptions& options,
                          Isa isa, const StopFlag* stop);

}  // namespace tessera::cpu
