// bench/harness/peak/peak.h: measures the peak rates of this machine, to which
// kernels are compared.
#pragma once

#include "tessera/machine.h"

namespace tessera::bench {

struct Peaks {
  // fp32 multiply-adds of the best ISA, two operations each. The portable loop
  // uses separate multiplies and adds.
  double fma_gflops = 0;
  // The dot product of AVX512-BF16 or AMX-BF16; 0: the ISA has none.
  double bf16_dot_gflops = 0;
  double read_gbytes = 0;  // sequential reads; 0: the buffer found no memory
};

// Measures on `threads` threads at once, the best of several samples. Takes
// about a second.
Peaks measure_peaks(int threads);
// Measures the products of one ISA, without reads. Takes half a second.
Peaks measure_products(Isa isa, int threads);

}  // namespace tessera::bench
