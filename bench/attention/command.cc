// bench/attention/command.cc: `tessera-bench attention`: compares the cpu lane
// to its peers and to the peak of the machine.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/isa.h"
#include "base/text.h"
#include "base/threads.h"
#include "bench/attention/group.h"
#include "bench/attention/report.h"
#include "bench/attention/settings.h"
#include "bench/commands.h"
#include "bench/harness/flags.h"
#include "cli/machine.h"
#include "receipt/machine.h"
#include "tessera/version.h"

namespace tessera::bench {

using cli::add_flags;
using cli::Command;
using cli::kOk;

namespace {

using nlohmann::json;

Result<int> run(const AttentionFlags& o) {
  auto settings = read_settings(o);
  if (!settings) return settings.error();
  TempFolder folder;
  if (auto made = folder.make(); !made) return made.error();
  if (!o.json) {
    fmt::print(
        "Attention on {}, {}. Useful GFLOP/s: legal pairs only, 4 x head dim\n"
        "a pair forward, 14 forward and backward; best of the runs, each with\n"
        "its preparation, the plan made before. decode: one query, 32768 "
        "keys,\n"
        "32/8 heads, in GB/s of K and V.\n\n",
        receipt::cpu_model(), to_string(settings->isa));
  }
  std::vector<AttentionGroup> groups;
  json peaks = json::array();
  json rows = json::array();
  for (const int32_t threads : settings->threads) {
    show_progress("peaks of the machine");
    const Peaks measured = measure_peaks(threads);
    show_progress("");
    peaks.push_back(peaks_json(measured, threads));
    if (!o.json) {
      fmt::print(
          "Peaks, {} thread{}: {:.1f} GFLOP/s fp32 FMA, {:.1f} bf16 dot, "
          "{:.1f} GB/s read\n\n",
          threads, threads == 1 ? "" : "s", measured.fma_gflops,
          measured.bf16_dot_gflops, measured.read_gbytes);
    }
    for (const int32_t tokens : settings->tokens) {
      for (const int32_t dim : settings->head_dims) {
        for (const Dtype dtype : settings->dtypes) {
          AttentionGroup group;
          group.tokens = tokens;
          group.head_dim = dim;
          group.dtype = dtype;
          group.threads = threads;
          group.peaks = measured;
          add_rows(group, o, *settings);
          if (group.rows.empty()) continue;
          if (auto r = measure_group(group, o, *settings, folder); !r) {
            return r.error();
          }
          if (!o.json) print_group(group);
          for (const BenchRow& row : group.rows) rows.push_back(row_json(row));
          groups.push_back(std::move(group));
        }
      }
    }
  }
  const bool quiet = was_quiet(groups);
  const json result = {{"bench", "attention"},
                       {"schema", 1},
                       {"version", kVersion},
                       {"cpu", receipt::cpu_model()},
                       {"cores", machine_threads()},
                       {"isa", to_string(settings->isa)},
                       {"peaks", peaks},
                       {"mask", o.mask ? json(*o.mask) : json(nullptr)},
                       {"quiet", quiet},
                       {"rows", rows},
                       {"peers", peer_runs_json(groups)}};
  if (o.json) fmt::print("{}\n", result.dump());
  if (!o.json && !quiet) {
    fmt::print(
        "Others were at work on this machine: figures are provisional.\n");
  }
  if (auto saved = save_result(o.out, o.results, result, o.json); !saved)
    return saved.error();
  return kOk;
}

}  // namespace

Command attention_command() {
  auto o = std::make_shared<AttentionFlags>();
  Command command{"attention",
                  "The cpu lane beside its peers and the machine's peaks"};
  add_flags(
      command,
      {
          {"--tokens", &o->tokens, "N,...", "Lengths in tokens [4096]"},
          {"--head-dim", &o->head_dim, "N,...", "Head dims [128]"},
          {"--dtype", &o->dtype, "TYPE,...", "Types, of f32 and bf16 [both]"},
          {"--threads", &o->threads, "N,...",
           "Numbers of threads [every core]"},
          {"--cases", &o->cases, "CASE,...",
           "Cases, of " + case_names() + " [all]"},
          {"--mask", &o->mask, "EXPR",
           "This mask alone, on drawn documents where it names them; "
           "routed(...) routes by q and k, which are then clustered"},
          {"--backward", &o->backward, "",
           "Measure forward and backward too, as rows of their own"},
          {"--isa", &o->isa, "ISA",
           "Instructions of our kernels, and the widest of the peers' [best]"},
          {"--seconds", &o->seconds, "N",
           "Seconds of runs for each measurement [2]"},
          {"--peers", &o->peers, "FOLDER",
           "Run the scripts of this folder (bench/peers) in the interpreters "
           "that TESSERA_TORCH_PYTHON and TESSERA_ORT_PYTHON name"},
          {"--peer-limit", &o->peer_limit, "N",
           "Seconds after which a script is ended [300]"},
          {"--json", &o->json, "", "One JSON object on stdout"},
          {"-o,--out", &o->out, "FILE", "Write the JSON here too"},
          {"--results", &o->results, "FOLDER",
           "Write the JSON as FOLDER/<this CPU>/attention.json too "
           "(bench/results)"},
      });
  command.footer =
      "bench/README.md tells how to install the peers;\n"
      "bench/plot_attention.py draws the JSON.";
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::bench
