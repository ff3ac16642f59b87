// lanes/cpu/blocks.h: the forward pass by blocks of queries.
#pragma once

#include <span>

#include "lanes/cpu/cpu.h"
#include "lanes/cpu/work.h"
#include "tessera/attention.h"

namespace tessera::cpu {

// The instruction set that such a call will run on, its arguments checked.
Result<Isa> check_call(const CpuWork::State& work, const AttentionShape& shape,
                       const ForwardTensors& tensors,
                       const CpuOptions& options);

// All arguments have been checked. `entropy` is [batch, heads, q_len], or empty
// where nobody wants it; what else is written has the same bits with it.
Result<CpuRun> run_blocks(const CpuWork::State& work,
                          const AttentionShape& shape,
                          const ForwardTensors& tensors,
                          std::span<float> entropy, const CpuOptions& options,
                          Isa isa, const StopFlag* stop);

}  // namespace tessera::cpu
