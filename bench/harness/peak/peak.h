// bench/harness/peak/peak.h: what this machine can do at most, measured: the
// figures beside which kernels are judged.
#pragma once

#include "tessera/machine.h"

namespace tessera::bench {

struct Peaks {
  // Multiply-adds of fp32, two operations each, of the best ISA; the portable
  // one multiplies and adds apart.
  double fma_gflops = 0;
  // The dot product of AVX512-BF16 or AMX-BF16; 0: the ISA has none.
  double bf16_dot_gflops = 0;
  double read_gbytes = 0;  // sequential reads of memory; 0: no memory for it
};

// On `threads` threads at once, the best of several samples. About a second.
Peaks measure_peaks(int threads);
// What one ISA multiplies and adds; reads are left out. Half a second.
Peaks measure_products(Isa isa, int threads);

}  // namespace tessera::bench
