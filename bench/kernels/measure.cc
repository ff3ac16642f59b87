// bench/kernels/measure.cc: takes the best of several samples of several runs.
#include "bench/kernels/measure.h"

#include <algorithm>

#include "base/timed.h"
#include "base/turns.h"
#include "cli/progress.h"
#include "run/judge_run.h"

namespace tessera::bench {
namespace {

constexpr double kSampleMs = 2;  // long compared to reading a clock

Result<KernelRow> measure_one(const KernelOperation& operation,
                              const KernelSize& size, Dtype dtype,
                              size_t variant, const Peaks& peaks,
                              double seconds) {
  // A new call, so that no result of another variant is taken for this one's.
  auto call = make_kernel_call(size, dtype, operation.backward);
  if (!call) return call.error();
  const KernelVariant v = operation.variants(*call)[variant];
  KernelRow row;
  row.operation = &operation;
  row.size = size;
  row.dtype = dtype;
  row.isa = v.isa;
  row.bf16_pairs = v.bf16_pairs;
  row.us = best_us(v.run, seconds);
  row.gflops = 2 * operation.products * static_cast<double>(size.dim) *
               call->pairs() / row.us / 1e3;
  row.peak = v.bf16_pairs ? peaks.bf16_dot_gflops : peaks.fma_gflops;
  cli::Progress progress("checking");
  auto check = run::judge_run(call->data.over(*call->batch),
                              {.progress = progress.callback()});
  if (!check) return check.error();
  row.ratio = check->max_bound_ratio;
  row.worst = check->worst;
  return row;
}

}  // namespace

double best_us(const std::function<void()>& run, double seconds) {
  const auto sample = [&](int64_t runs) {
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < runs; ++i) run();
    return ms_since(start);
  };
  int64_t runs = 1;
  while (sample(runs) < kSampleMs) runs *= 2;
  const auto ms = repeat<double>(
      {.seconds = seconds}, [&]() -> Result<double> { return sample(runs); });
  return std::ranges::min(*ms) * 1e3 / static_cast<double>(runs);
}

std::map<Isa, Peaks> kernel_peaks(const std::vector<Isa>& isas) {
  std::map<Isa, Peaks> out;
  for (const Isa isa : isas) out[isa] = measure_products(isa, 1);
  return out;
}

Result<std::vector<KernelRow>> measure_kernels(
    const KernelOperation& operation, const std::map<Isa, Peaks>& peaks,
    double seconds) {
  std::vector<KernelRow> rows;
  for (const KernelSize& size : operation.sizes) {
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
      auto call = make_kernel_call(size, dtype, operation.backward);
      if (!call) return call.error();
      const std::vector<KernelVariant> all = operation.variants(*call);
      for (size_t v = 0; v < all.size(); ++v) {
        const auto peak = peaks.find(all[v].isa);
        if (peak == peaks.end()) continue;
        auto row =
            measure_one(operation, size, dtype, v, peak->second, seconds);
        if (!row) return row.error();
        rows.push_back(std::move(*row));
      }
    }
  }
  return rows;
}

}  // namespace tessera::bench
