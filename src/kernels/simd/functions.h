// kernels/simd/functions.h: the functions of math.h over arrays, per ISA, for
// the micro-benchmark and for tests.
#pragma once

#include <cstdint>

#include "tessera/machine.h"

namespace tessera::kernels {

// `count` is a multiple of 16.
using ArrayFunction = void (*)(const float* from, float* to, int64_t count);

struct ArrayFunctions {
  ArrayFunction exp2 = nullptr, log2 = nullptr;
  ArrayFunction tanh = nullptr;  // maps y to tanh(ln(2) / 2 * y)
};
// The functions for the best vectors up to `isa`.
ArrayFunctions array_functions(Isa isa);

}  // namespace tessera::kernels
