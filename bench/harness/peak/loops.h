// bench/harness/peak/loops.h: loops that do one thing as fast as the core can.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tessera/machine.h"

namespace tessera::bench {

// Runs `rounds` rounds in registers; what it returns must be used.
using RegisterLoop = float (*)(int64_t rounds);

struct Loop {
  RegisterLoop run = nullptr;  // null: this ISA has no such instruction
  double operations = 0;       // floating-point operations a round
};

Loop fma_loop(Isa isa);
Loop bf16_dot_loop(Isa isa);

// Reads every byte: the sum of 8-byte words. `bytes` is a multiple of 512.
uint64_t read_all(const std::byte* data, size_t bytes);

}  // namespace tessera::bench
