// lanes/cpu/decode.h: the forward pass of few queries against many keys.
#pragma once

#include "lanes/cpu/cpu.h"
#include "lanes/cpu/work.h"
#include "tessera/attention.h"

namespace tessera::cpu {

// Calls of at most this many queries run here, longer ones in forward.cc, whose
// panels hold 8 to 32 queries of one head, depending on the ISA. With 8 queries
// and no shared K/V heads, decode() takes 1.03 (f32) and 1.2 (bf16) of the time
// of forward.cc on portable, 0.75 and 0.93 on avx2, 0.25 and 0.3 with AVX-512;
// less with fewer queries or more heads that share keys.
inline constexpr int64_t kDecodeQueries = 8;

// The most keys of one task.
inline constexpr int64_t kDecodeKeys = 2048;

// The arguments must have been checked.
Result<CpuRun> decode(const CpuWork::State& work, const AttentionShape& shape,
                      const ForwardTensors& tensors, const CpuOptions& options,
                      Isa isa, const StopFlag* stop);

}  // namespace tessera::cpu
