// bench/recompile/report.cc: prints the totals, and writes them as JSON.
#include "bench/recompile/report.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <string>

#include "base/dtype_word.h"
#include "receipt/machine.h"
#include "tessera/version.h"

namespace tessera::bench {

using nlohmann::json;

namespace {

// The settings of the batches, for either lane.
json batches_json(const RecompileSettings& s, int64_t batches) {
  return {
      {"version", kVersion},
      {"cpu", receipt::cpu_model()},
      {"lane", to_string(s.lane)},
      {"batches", batches},
      {"rows_of_a_batch", s.sizes.rows},
      {"tokens", s.sizes.tokens},
      {"heads", s.shape.heads},
      {"kv_heads", s.shape.kv_heads},
      {"head_dim", s.shape.head_dim},
      {"dtype", dtype_word(s.dtype)},
      {"seed", s.seed},
  };
}

void print_batches(const RecompileSettings& s, std::string_view where) {
  fmt::print(
      "Batches of {} rows of {} to {} tokens in packed documents, {} heads "
      "({} K/V),\nhead dim {}, {}, forward and backward; {}, {}\n\n",
      s.sizes.rows, s.sizes.tokens * 7 / 16, s.sizes.tokens, s.shape.heads,
      s.shape.kv_heads, s.shape.head_dim, dtype_word(s.dtype),
      receipt::cpu_model(), where);
}

}  // namespace

json result_json(const RecompileFlags& o, const RecompileSettings& s,
                 const PluginPlace& place, const RecompileTotals& t,
                 const std::vector<RecompilePeer>& peers) {
  json out = batches_json(s, t.batches);
  out.update({
      {"plugin", std::filesystem::path(place.plugin).filename().string()},
      {"platform", place.platform},
      {"device", place.device},
      {"warmed", !o.cold},
      {"compiles", t.compiles},
      {"compiles_in_loop", t.compiles_in_loop},
      {"buckets", t.contracts.size()},
      {"disk_hits", t.disk_hits},
      {"memory_hits", t.memory_hits},
      {"legal_pairs", t.legal_pairs},
      {"check",
       {{"passed", t.passed()},
        {"kind", t.all_rows ? "full" : "sampled"},
        {"rows", t.rows},
        {"max_ratio", t.max_ratio},
        {"worst", t.worst}}},
      {"plan_ms", t.plan_ms},
      {"compile_ms", t.compile_ms},
      {"transfer_ms", t.transfer_ms},
      {"xla_ms", t.xla_ms},
      {"cpu_ms", t.cpu_ms},
      {"warnings", t.warnings},
  });
  for (const RecompilePeer& p : peers) out["peers"].push_back(to_json(p));
  return out;
}

void print_result(const RecompileFlags& o, const RecompileSettings& s,
                  const PluginPlace& place, const RecompileTotals& t,
                  const std::vector<RecompilePeer>& peers) {
  const auto each = [&](double ms) {
    return ms / static_cast<double>(t.batches);
  };
  print_batches(s, place.device);
  fmt::print("compiles    {}{}\n", t.compiles,
             o.cold ? ""
                    : fmt::format(", {} of them after the warm-up",
                                  t.compiles_in_loop));
  fmt::print("buckets     {} kernel contracts: {} of lengths, two directions\n",
             t.contracts.size(), t.shapes.size());
  fmt::print("batches     {}\n", t.batches);
  if (!s.xla.cache_folder.empty()) {
    fmt::print("from disk   {}\n", t.disk_hits);
  }
  fmt::print(
      "check       {}: {} of the xla and cpu lanes, {} in all; {:.3g} % of the "
      "error bound at most\n",
      t.passed() ? "passed" : "FAILED",
      t.all_rows ? "every row" : "sampled rows", t.rows, 100 * t.max_ratio);
  fmt::print(
      "time        plan {:.3g} ms, compile {:.0f} ms; a batch: plan {:.3g} ms, "
      "xla {:.3g} ms and {:.3g} ms transfer, cpu {:.3g} ms\n",
      t.plan_ms, t.compile_ms, each(t.plan_ms), each(t.xla_ms),
      each(t.transfer_ms), each(t.cpu_ms));
  for (const RecompilePeer& p : peers) {
    const std::string name = "flex" + (p.mode.empty() ? "" : " " + p.mode);
    if (!p.why.empty()) {
      fmt::print("peer        {}: not measured: {}\n", name, p.why);
    }
    if (p.batches == 0) continue;
    const auto batches_run = static_cast<double>(p.batches);
    fmt::print(
        "peer        {}: {} compiles in {:.0f} ms, {} batches of {} lengths, "
        "{} of them not compiled;\n            a batch, forward: mask {:.3g} "
        "ms, run {:.3g} ms\n",
        name, p.compiles, p.compile_ms, p.batches, p.lengths, p.eager,
        p.mask_ms / batches_run, p.run_ms / batches_run);
  }
  for (const std::string& w : t.warnings) fmt::print("warning     {}\n", w);
  std::fflush(stdout);
}

json kernels_json(const RecompileSettings& s, const KernelTarget& target,
                  const KernelTotals& t) {
  json out = batches_json(s, t.batches);
  out.update({
      {"target", s.target},
      {"tile", {s.sizes.tile, s.sizes.tile}},
      {"buckets", t.contracts.size()},
      {"programs", t.programs.size()},
      {"compiles", target.topology ? json(t.compiles) : json()},
      {"why_not", target.topology ? json() : json(target.why_not)},
      {"steps", t.steps},
      {"legal_pairs", t.legal_pairs},
      {"plan_ms", t.plan_ms},
      {"write_ms", t.write_ms},
      {"arrays_ms", t.arrays_ms},
      {"compile_ms", t.compile_ms},
  });
  return out;
}

void print_kernels(const RecompileSettings& s, const KernelTarget& target,
                   const KernelTotals& t) {
  print_batches(s, "compiled for " + s.target);
  fmt::print("compiles    {}\n", target.topology ? fmt::to_string(t.compiles)
                                                 : "none: " + target.why_not);
  fmt::print(
      "buckets     {} kernel contracts: {} of lengths, two directions\n"
      "programs    {}\n"
      "batches     {}, {} steps of worklists in all\n",
      t.contracts.size(), t.shapes.size(), t.programs.size(), t.batches,
      t.steps);
  const auto batches = static_cast<double>(t.batches);
  fmt::print(
      "time        compile {:.0f} ms; a batch: plan {:.3g} ms, kernels as text "
      "{:.3g} ms, arrays {:.3g} ms\n",
      t.compile_ms, t.plan_ms / batches, t.write_ms / batches,
      t.arrays_ms / batches);
  std::fflush(stdout);
}

}  // namespace tessera::bench
