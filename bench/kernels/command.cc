// bench/kernels/command.cc: `tessera-bench kernels`: each kernel alone, on one
// thread, compared to the peak of its instructions.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/dtype_word.h"
#include "base/fail.h"
#include "base/isa.h"
#include "base/text.h"
#include "bench/commands.h"
#include "bench/harness/flags.h"
#include "bench/harness/times.h"
#include "bench/kernels/measure.h"
#include "cli/machine.h"
#include "receipt/machine.h"
#include "request/numbers.h"
#include "tessera/version.h"

namespace tessera::bench {

using cli::add_flags;
using cli::Command;
using cli::kFailed;
using cli::kOk;

namespace {

using nlohmann::json;

struct Options {
  std::optional<std::string> operation, isa, seconds, out;
  bool json = false;
};

const KernelOperation* const kOperations[] = {
    &forward_operation(), &backward_operation(), &decode_operation()};

Result<std::vector<const KernelOperation*>> operations_of(const Options& o) {
  std::vector<const KernelOperation*> out;
  std::vector<std::string_view> names;
  for (const KernelOperation* k : kOperations) {
    names.push_back(k->name);
    if (!o.operation || *o.operation == k->name) out.push_back(k);
  }
  if (!out.empty()) return out;
  return invalid("cli", "the operation must be one of {}, found {}",
                 fmt::join(names, ", "), in_quotes(*o.operation));
}

Result<std::vector<Isa>> isas_of(const Options& o) {
  if (!o.isa) return machine_isas();
  auto asked = parse_isa(*o.isa);
  if (!asked) return asked.error();
  auto isa = choose_isa(*asked);
  if (!isa) return isa.error();
  return std::vector<Isa>{*isa};
}

std::string variant_name(const KernelRow& r) {
  return fmt::format("{}{}", to_string(r.isa), r.bf16_pairs ? " pairs" : "");
}

void print_row(const KernelRow& r) {
  fmt::print(
      "{:<9} {:<16} {:<5} {:<7} {:>4} {:>5} {:>5} {:>4} {:>10.2f} {:>8.1f} "
      "{:>6.0f}%\n",
      r.operation->name, variant_name(r), dtype_word(r.dtype), r.size.mask,
      r.size.queries, r.size.keys, r.size.heads, r.size.dim, r.us, r.gflops,
      100 * r.gflops / r.peak);
}

json row_json(const KernelRow& r) {
  return {{"operation", r.operation->name},
          {"isa", to_string(r.isa)},
          {"bf16_pairs", r.bf16_pairs},
          {"dtype", dtype_word(r.dtype)},
          {"mask", r.size.mask},
          {"queries", r.size.queries},
          {"keys", r.size.keys},
          {"heads", r.size.heads},
          {"head_dim", r.size.dim},
          {"us", r.us},
          {"gflops", r.gflops},
          {"share_of_peak", r.gflops / r.peak},
          {"bound_ratio", r.ratio}};
}

json peaks_json(const std::map<Isa, Peaks>& peaks) {
  json out = json::object();
  for (const auto& [isa, p] : peaks) {
    out[std::string(to_string(isa))] = {{"fma_gflops", p.fma_gflops},
                                        {"bf16_dot_gflops", p.bf16_dot_gflops}};
  }
  return out;
}

void print_head(const std::map<Isa, Peaks>& peaks) {
  fmt::print("One thread of {}; at most, in GFLOP/s:\n", receipt::cpu_model());
  for (const auto& [isa, p] : peaks) {
    fmt::print("  {:<11} {:>7.1f}", to_string(isa), p.fma_gflops);
    if (p.bf16_dot_gflops > 0) {
      fmt::print(", of pairs {:.1f}", p.bf16_dot_gflops);
    }
    fmt::print("\n");
  }
  fmt::print(
      "\n{:<9} {:<16} {:<5} {:<7} {:>4} {:>5} {:>5} {:>4} {:>10} {:>8} "
      "{:>7}\n",
      "kernel", "variant", "dtype", "mask", "q", "keys", "heads", "dim", "us",
      "GFLOP/s", "of peak");
}

Result<int> run(const Options& o) {
  auto operations = operations_of(o);
  if (!operations) return operations.error();
  auto isas = isas_of(o);
  if (!isas) return isas.error();
  auto seconds =
      request::parse_positive(o.seconds.value_or("0.1"), "--seconds");
  if (!seconds) return seconds.error();
  if (auto e = check_result(o.out); !e) return e.error();
  const cli::OtherCores others;
  const auto peaks = kernel_peaks(*isas);
  if (!o.json) print_head(peaks);
  json rows = json::array();
  bool passed = true;
  for (const KernelOperation* operation : *operations) {
    auto measured = measure_kernels(*operation, peaks, *seconds);
    if (!measured) return measured.error();
    for (const KernelRow& r : *measured) {
      rows.push_back(row_json(r));
      if (!o.json) print_row(r);
      if (r.ratio <= 1) continue;
      passed = false;
      print_out_of_bound(r.ratio, fmt::format("{} {}: {}", r.operation->name,
                                              variant_name(r), r.worst));
    }
  }
  const double busy = others.so_far();
  const json result = {{"version", kVersion}, {"cpu", receipt::cpu_model()},
                       {"busy_cores", busy},  {"peaks", peaks_json(peaks)},
                       {"passed", passed},    {"rows", rows}};
  if (auto e = write_result(o.out, result); !e) return e.error();
  if (o.json) {
    fmt::print("{}\n", result.dump(2));
  } else if (busy > kQuietCores) {
    fmt::print("\nOther programs kept {:.1f} cores busy meanwhile.\n", busy);
  }
  return passed ? kOk : kFailed;
}

}  // namespace

Command kernels_command() {
  auto o = std::make_shared<Options>();
  Command command{"kernels", "Each kernel alone, beside the machine's peak"};
  add_flags(command,
            {
                {"operation", &o->operation, "NAME",
                 "forward, backward or decode [all]"},
                {"--isa", &o->isa, "NAME",
                 "portable, avx2, avx512, avx512bf16 or amx, which this "
                 "machine must have "
                 "[all it has]"},
                {"--seconds", &o->seconds, "S", "Seconds for each row [0.1]"},
                {"--json", &o->json, "", "One JSON object on stdout"},
                {"-o,--out", &o->out, "FILE", "Write the JSON here too"},
            });
  command.footer =
      "GFLOP/s count legal pairs: two operations a number of each product, of\n"
      "which forward and decode have two and backward five. The peak is that "
      "of\n"
      "the variant's own instructions. What a row wrote is judged by fp64.";
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::bench
