// bench/recompile/command.cc: `tessera-bench recompile`: counts compiles while
// every batch is different.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/threads.h"
#include "bench/commands.h"
#include "bench/harness/flags.h"
#include "bench/recompile/kernels.h"
#include "bench/recompile/peer.h"
#include "bench/recompile/report.h"
#include "bench/recompile/run.h"
#include "bench/recompile/settings.h"
#include "cli/progress.h"

namespace tessera::bench {

using cli::add_flags;
using cli::Command;
using cli::kFailed;
using cli::kOk;
using cli::Progress;

namespace {

using nlohmann::json;

Result<int> make_kernels(const RecompileFlags& o, const RecompileSettings& s,
                         const std::vector<RaggedBatch>& batches) {
  auto target = open_target(s, o.plugin.has_value());
  if (!target) return target.error();
  auto kernels = compile_kernels(s, *target, batches);
  if (!kernels) return kernels.error();
  const json result = kernels_json(s, *target, *kernels);
  if (auto e = write_result(o.out, result); !e) return e.error();
  if (o.json) {
    fmt::print("{}\n", result.dump(2));
  } else {
    print_kernels(s, *target, *kernels);
  }
  if (kernels->one_each()) return kOk;
  fmt::print(stderr,
             "tessera-bench: [bench] each kernel contract must have one "
             "program, found {} programs for {} contracts\n",
             kernels->programs.size(), kernels->contracts.size());
  return kFailed;
}

Result<int> run_lanes(const RecompileFlags& o, const RecompileSettings& s,
                      const std::vector<RaggedBatch>& batches) {
  auto lanes = open_lanes(s);
  if (!lanes) return lanes.error();
  const auto place = lanes->xla.place();
  if (!place) return place.error();
  RecompileTotals totals;
  if (!o.cold) {
    auto warmed = warm_up(lanes->xla, s, batches, totals);
    if (!warmed) return warmed.error();
  }
  auto ran = run_batches(*lanes, s, batches, totals);
  if (!ran) return ran.error();
  std::vector<RecompilePeer> peers;
  if (o.peers) {
    Progress progress("FlexAttention");
    peers = run_recompile_peer({*o.peers, batches, s.sizes, s.shape, s.dtype,
                                machine_threads(), s.peer_limit});
    for (RecompilePeer& p : peers) {
      if (!p.why.empty() || p.pairs == totals.legal_pairs) continue;
      p.why = fmt::format("it counts {} legal pairs, ours are {}", p.pairs,
                          totals.legal_pairs);
    }
  }
  const json result = result_json(o, s, *place, totals, peers);
  if (auto e = write_result(o.out, result); !e) return e.error();
  if (o.json) {
    fmt::print("{}\n", result.dump(2));
  } else {
    print_result(o, s, *place, totals, peers);
  }
  const bool stray = !o.cold && totals.compiles_in_loop > 0;
  if (!totals.passed()) {
    print_out_of_bound(totals.max_ratio, totals.worst);
  }
  if (!totals.one_each() || stray) {
    fmt::print(
        stderr,
        "tessera-bench: [bench] each kernel contract must be compiled once, "
        "found {} compiles ({} after the warm-up) and {} from disk for "
        "{} contracts\n",
        totals.compiles, totals.compiles_in_loop, totals.disk_hits,
        totals.contracts.size());
  }
  return totals.passed() && totals.one_each() && !stray ? kOk : kFailed;
}

Result<int> run(const RecompileFlags& o) {
  auto settings = read_settings(o);
  if (!settings) return settings.error();
  const RecompileSettings& s = *settings;
  std::vector<RaggedBatch> batches;
  batches.reserve(static_cast<size_t>(s.batches));
  for (int64_t i = 0; i < s.batches; ++i) {
    batches.push_back(ragged_batch(s.sizes, s.seed, i));
  }
  return s.lane == LaneId::mosaic ? make_kernels(o, s, batches)
                                  : run_lanes(o, s, batches);
}

}  // namespace

Command recompile_command() {
  auto o = std::make_shared<RecompileFlags>();
  Command command{"recompile",
                  "How often a lane compiles while every batch differs"};
  add_flags(
      command,
      {
          {"--lane", &o->lane, "NAME",
           "xla, beside cpu; mosaic, whose TPU kernels are compiled ahead of "
           "time, where libtpu is [xla]"},
          {"--target", &o->target, "NAME", "Target of lane mosaic [v6e:1x1]"},
          {"--batches", &o->batches, "N", "Batches, no two alike [200]"},
          {"--tokens", &o->tokens, "N", "The longest batch row [512]"},
          {"--dtype", &o->dtype, "TYPE", "f32 or bf16 [f32]"},
          {"--seed", &o->seed, "N", "Seed of the batches [0]"},
          {"--plugin", &o->plugin, "NAME",
           "A file or a known name [xla_cpu_pjrt; for lane mosaic libtpu]"},
          {"--device", &o->device, "N", "Number of the plugin's device [0]"},
          {"--cache", &o->cache, "FOLDER",
           "Keep what is compiled there; a second run compiles nothing "
           "[nowhere]"},
          {"--max-compiles", &o->max_compiles, "N",
           "Most programs to compile; one more is an error that says what "
           "varied, 0 is no limit [0]"},
          {"--cold", &o->cold, "",
           "No warm-up: a batch compiles what it needs first"},
          {"--peers", &o->peers, "FOLDER",
           "FlexAttention on the same batches: the script of this folder "
           "(bench/peers) in the interpreter that TESSERA_TORCH_PYTHON names"},
          {"--peer-limit", &o->peer_limit, "N",
           "Seconds after which the script is ended [600]"},
          {"--json", &o->json, "", "One JSON object on stdout"},
          {"-o,--out", &o->out, "FILE", "Write the JSON here too"},
      });
  command.footer =
      "Exits with 1 unless compiles (or, with --cache, compiles and programs\n"
      "from disk) are as many as the kernel contracts of the batches, and\n"
      "every result of both lanes is within its bound of fp64. With --lane\n"
      "mosaic unless all batches of a kernel contract make one program; no\n"
      "batch is run there.";
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::bench
