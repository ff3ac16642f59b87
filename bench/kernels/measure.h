// bench/kernels/measure.h: the variants of an operation, each timed alone.
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
  double peak = 0;    // GFLOP/s of what this variant multiplies with
  double ratio = 0;   // of the worst error to its bound
  std::string worst;
};

// Microseconds of one run: the least of the samples of `seconds`.
double best_us(const std::function<void()>& run, double seconds);

// Of one thread.
std::map<Isa, Peaks> kernel_peaks(const std::vector<Isa>& isas);

// Every size and dtype on every variant of these ISAs, `seconds` each. What
// the last run wrote is judged by fp64.
Result<std::vector<KernelRow>> measure_kernels(
    const KernelOperation& operation, const std::map<Isa, Peaks>& peaks,
    double seconds);

}  // namespace tessera::bench
