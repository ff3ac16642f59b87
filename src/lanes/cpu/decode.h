// lanes/cpu/decode.h: the forward pass of few queries against many keys.
#pragma once

#include "lanes/cpu/work.h"
#include "tessera/attention.h"
#include "tessera/cpu.h"

namespace tessera {

// Calls of at most so many queries run here, longer ones in forward.cc. Its
// panels are of 8 to 32 queries of one head, by ISA: at 8, this is about as
// fast on each (portable), or 1.3 (avx2) to 5 times as fast (avx512bf16), and
// the fewer the queries and the more heads share keys, the more so.
inline constexpr int64_t kDecodeQueries = 8;

// Keys of one task at most.
inline constexpr int64_t kDecodeKeys = 2048;

// All arguments have been checked.
CpuRun decode(const CpuWork::State& work, const AttentionShape& shape,
              const ForwardTensors& tensors, const CpuOptions& options,
              Isa isa);

}  // namespace tessera
