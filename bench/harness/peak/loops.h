// bench/harness/peak/loops.h: loops that reach the peak rate of one core.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/machine.h"

namespace tessera::bench {

// Runs `rounds` rounds in registers. The caller must use the result, or the
// compiler removes the loop.
using RegisterLoop = float (*)(int64_t rounds);

struct Loop {
  RegisterLoop run = nullptr;  // null: this ISA has no such instruction
  double operations = 0;       // floating-point operations of a round
};

Loop fma_loop(Isa isa);
Loop bf16_dot_loop(Isa isa);

// Reads all bytes and returns the sum of their 8-byte words. `bytes` is a
// multiple of 512.
uint64_t read_all(const std::byte* data, size_t bytes);

}  // namespace tessera::bench
