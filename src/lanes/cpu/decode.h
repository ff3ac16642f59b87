// lanes/cpu/decode.h: the forward pass of few queries against many keys.
#pragma once

#include "lanes/cpu/cpu.h"
#include "lanes/cpu/work.h"
#include "tessera/attention.h"

namespace tessera::cpu {

// Calls of at most so many queries run here, longer ones in forward.cc. Its
// panels are of 8 to 32 queries of one head, by ISA: at 8 queries without
// shared heads this takes 1.03 (f32) and 1.2 (bf16) of its time on portable,
// 0.75 and 0.93 on avx2, 0.25 and 0.3 with AVX-512; the fewer the queries and
// the more heads share keys, the less.
inline constexpr int64_t kDecodeQueries = 8;

// Keys of one task at most.
inline constexpr int64_t kDecodeKeys = 2048;

// All arguments have been checked.
Result<CpuRun> decode(const CpuWork::State& work, const AttentionShape& shape,
                      const ForwardTensors& tensors, const CpuOptions& options,
                      Isa isa, const StopFlag* stop);

}  // namespace tessera::cpu
