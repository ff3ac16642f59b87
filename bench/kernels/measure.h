// bench/kernels/measure.h: times each variant of an operation alone.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "bench/harness/peak/peak.h"
#include "bench/kernels/kernels.h"
#include "tessera/result.h"

namespace tessera::bench {

struct KernelRow {
  const KernelOperation* operation = nullptr;
  KernelSize size;
  Dtype dtype = Dtype::f32;
  Isa isa = Isa::portable;
  bool bf16_pairs = false;
  double us = 0;      // the least of the samples
  double gflops = 0;  // of legal pairs
  double peak = 0;    // peak GFLOP/s of the variant's multiply instruction
  double ratio = 0;   // of the worst error to its bound
  std::string worst;
};

// Microseconds of one run: the least of the samples of `seconds`.
double best_us(const std::function<void()>& run, double seconds);

// The peaks of each ISA on one thread.
std::map<Isa, Peaks> kernel_peaks(const std::vector<Isa>& isas);

// Measures every size and dtype on every variant of these ISAs, `seconds` each.
// The results of the last run are compared to fp64.
Result<std::vector<KernelRow>> measure_kernels(
    const KernelOperation& operation, const std::map<Isa, Peaks>& peaks,
    double seconds);

}  // namespace tessera::bench
