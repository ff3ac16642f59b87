// bench/kernels/functions.cc: `tessera-bench functions`: exp2, log2 and tanh of
// each ISA on numbers in the L1 cache, compared to libm and to the limit.
#include "kernels/simd/functions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/isa.h"
#include "bench/commands.h"
#include "bench/harness/times.h"
#include "bench/kernels/measure.h"
#include "cli/machine.h"
#include "lanes/reference/bound.h"
#include "receipt/machine.h"
#include "request/numbers.h"

namespace tessera::bench {
namespace {

using nlohmann::json;

constexpr int64_t kCount = 2048;  // two arrays of 8 KiB
constexpr double kHalfLn2 = 0.34657359027997264;
constexpr double kRoundings = 8;  // as counted in lanes/reference/bound.cc

// `products`: multiplications and divisions that math.h needs for a vector;
// `fused`: those of them that are fused with an addition.
struct Function {
  const char* name;
  kernels::ArrayFunction kernels::ArrayFunctions::*ours;
  float (*libm)(float);
  double (*exact)(double);
  float least, most;  // range of the inputs
  double products, fused;
};

float tanh_of(float y) { return std::tanh(y * static_cast<float>(kHalfLn2)); }

const Function kFunctions[] = {
    {"exp2", &kernels::ArrayFunctions::exp2,
     [](float x) { return std::exp2(x); },
     [](double x) { return std::exp2(x); }, -30, 0, 6, 5},
    {"log2", &kernels::ArrayFunctions::log2,
     [](float x) { return std::log2(x); },
     [](double x) { return std::log2(x); }, 1, 4096, 6, 4},
    {"tanh", &kernels::ArrayFunctions::tanh, tanh_of,
     [](double y) { return std::tanh(y * kHalfLn2); }, 0.01F, 20, 9, 6},
};

struct Row {
  const Function* function = nullptr;
  Isa isa = Isa::portable;
  double ns = 0, libm_ns = 0, limit_ns = 0;  // for one number
  double error = 0;                          // the worst, in 2^-24 of the value
};

// The least time of a number: its products at the peak rate of multiply-adds.
// Additions, shifts and compares are free, as they may have their own units.
double limit_of(const Function& f, Isa isa, const Peaks& peaks) {
  if (isa == Isa::portable) {
    return (f.products + f.fused) / peaks.fma_gflops;
  }
  return 2 * f.products / peaks.fma_gflops;
}

Row measure(const Function& f, Isa isa, const Peaks& peaks, double seconds) {
  std::vector<float> from(kCount), to(kCount);
  for (int64_t i = 0; i < kCount; ++i) {
    from[static_cast<size_t>(i)] =
        f.least + (f.most - f.least) * static_cast<float>(i) / kCount;
  }
  Row out{&f, isa};
  out.limit_ns = limit_of(f, isa, peaks);
  const auto ns = [&](const std::function<void()>& run) {
    return 1e3 * best_us(run, seconds) / kCount;
  };
  out.libm_ns = ns([&] { std::ranges::transform(from, to.begin(), f.libm); });
  const kernels::ArrayFunction ours = kernels::array_functions(isa).*f.ours;
  std::ranges::fill(to, std::nanf(""));
  out.ns = ns([&] { ours(from.data(), to.data(), kCount); });
  for (size_t i = 0; i < from.size(); ++i) {
    const double want = f.exact(double{from[i]});
    // log2 is 0 at 1, so its error is relative to 1 at least.
    const double size = std::max(std::abs(want), f.least == 1 ? 1.0 : 0.0);
    const double error =
        std::abs(double{to[i]} - want) / (size * reference::kEps32);
    if (!(error <= out.error) && !std::isnan(out.error)) out.error = error;
  }
  return out;
}

struct Options {
  std::optional<std::string> seconds;
  bool json = false;
};

Result<int> run(const Options& o) {
  auto seconds =
      request::parse_positive(o.seconds.value_or("0.1"), "--seconds");
  if (!seconds) return seconds.error();
  const cli::OtherCores others;
  json rows = json::array();
  bool passed = true;
  if (!o.json) {
    fmt::print(
        "One thread of {}; ns a number:\n{:<9} {:<9} {:>8} {:>8} {:>8}\n",
        receipt::cpu_model(), "function", "isa", "ours", "libm", "limit");
  }
  std::vector<Isa> isas = machine_isas();
  // ISAs beyond avx512 use the functions of avx512.
  std::erase_if(isas, [](Isa isa) { return isa > Isa::avx512; });
  for (const auto& [isa, peaks] : kernel_peaks(isas)) {
    for (const Function& f : kFunctions) {
      const Row r = measure(f, isa, peaks, *seconds);
      passed = passed && r.error <= kRoundings;
      rows.push_back({{"function", f.name},
                      {"isa", to_string(isa)},
                      {"ns", r.ns},
                      {"libm_ns", r.libm_ns},
                      {"limit_ns", r.limit_ns},
                      {"roundings", r.error}});
      if (o.json) continue;
      fmt::print("{:<9} {:<9} {:>8.3f} {:>8.3f} {:>8.3f}\n", f.name,
                 to_string(isa), r.ns, r.libm_ns, r.limit_ns);
    }
  }
  const double busy = others.so_far();
  if (o.json) {
    const json result = {{"cpu", receipt::cpu_model()},
                         {"busy_cores", busy},
                         {"passed", passed},
                         {"rows", rows}};
    fmt::print("{}\n", result.dump(2));
  } else if (busy > kQuietCores) {
    fmt::print("\nOther programs kept {:.1f} cores busy meanwhile.\n", busy);
  }
  return passed ? cli::kOk : cli::kFailed;
}

}  // namespace

cli::Command functions_command() {
  auto o = std::make_shared<Options>();
  cli::Command command{"functions", "exp2, log2 and tanh of each ISA alone"};
  cli::add_flags(
      command,
      {
          {"--seconds", &o->seconds, "S", "Seconds for each row [0.1]"},
          {"--json", &o->json, "", "One JSON object on stdout"},
      });
  command.footer =
      "libm is a plain loop over the C library's. The limit is what the\n"
      "multiplications alone take at the machine's peak. What is off by more\n"
      "than 8 roundings of fp32 is an error.";
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::bench
