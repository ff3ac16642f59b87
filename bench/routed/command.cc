// bench/routed/command.cc: `tessera-bench routed`: clustered sparse attention,
// from q and k to the output, beside dense causal attention and PyTorch.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/dtype_word.h"
#include "base/isa.h"
#include "base/threads.h"
#include "bench/commands.h"
#include "bench/harness/flags.h"
#include "bench/harness/times.h"
#include "bench/routed/measure.h"
#include "bench/routed/rows.h"
#include "bench/routed/settings.h"
#include "cli/machine.h"
#include "receipt/machine.h"
#include "tessera/version.h"

namespace tessera::bench {

using cli::add_flags;
using cli::Command;
using cli::kFailed;
using cli::kOk;
using cli::OtherCores;

namespace {

using nlohmann::json;

Result<int> run(const RoutedFlags& o) {
  auto settings = read_settings(o);
  if (!settings) return settings.error();
  const RoutedSettings& s = *settings;
  const Isa isa = s.peer.isa;
  const AttentionShape& shape = s.sizes.shape;
  if (!o.json) {
    fmt::print(
        "Routed attention on {}, {}, {} thread{}: heads {} on {} of K and V, "
        "head dim {}.\ncausal & routed(top, {}) by MoBA's rule, {}; "
        "forward, from q, k and v to the output\n\n",
        receipt::cpu_model(), to_string(isa), s.sizes.threads,
        s.sizes.threads == 1 ? "" : "s", shape.heads, shape.kv_heads,
        shape.head_dim, kRoutedBlock, to_string(s.sizes.meaning));
    std::fflush(stdout);
  }
  json tables = json::array();
  bool passed = true;
  std::optional<int64_t> top;
  double busiest = 0;
  for (const Dtype dtype : s.dtypes) {
    for (const int32_t tokens : s.tokens) {
      auto table = measure(tokens, dtype, s);
      if (!table) return table.error();
      if (!top) top = table->top;
      busiest = std::max(busiest, table->other_cores);
      tables.push_back(table_json(*table));
      if (!o.json) {
        fmt::print("{}\n", table_text(*table));
        std::fflush(stdout);
      }
      if (table->check.passed()) continue;
      passed = false;
      print_out_of_bound(table->check.max_ratio,
                         fmt::format("{} tokens, {}: {}", tokens,
                                     dtype_word(dtype), table->check.worst));
    }
  }
  const OtherCores others_growing;
  auto growth = measure_growth(s, *top);
  if (!growth) return growth.error();
  busiest = std::max(busiest, others_growing.so_far());
  if (!o.json && !growth->rows.empty()) {
    fmt::print("{}", growth_text(*growth));
  }
  const bool quiet = busiest < kQuietCores;
  if (!o.json && !quiet) {
    fmt::print(
        "Others were at work on this machine: figures are provisional.\n");
  }
  const json result = {{"bench", "routed"},
                       {"schema", 1},
                       {"version", kVersion},
                       {"cpu", receipt::cpu_model()},
                       {"cores", machine_threads()},
                       {"threads", s.sizes.threads},
                       {"isa", to_string(isa)},
                       {"heads", shape.heads},
                       {"kv_heads", shape.kv_heads},
                       {"head_dim", shape.head_dim},
                       {"block", kRoutedBlock},
                       {"rule", "moba"},
                       {"meaning", to_string(s.sizes.meaning)},
                       {"rounds", s.rounds},
                       {"quiet", quiet},
                       {"passed", passed},
                       {"tables", tables},
                       {"growth", growth_json(*growth)}};
  if (auto e = write_result(o.out, result); !e) return e.error();
  if (o.json) fmt::print("{}\n", result.dump());
  return passed ? kOk : kFailed;
}

constexpr const char* kFooter =
    "Examples:\n"
    "  tessera-bench routed\n"
    "  tessera-bench routed --peers bench/peers -o routed.json\n"
    "  tessera-bench routed --tokens 8192 --rounds 1 --growth off\n"
    "\n"
    "bench/README.md tells what is measured, docs/routing.md what the stages "
    "mean.";

}  // namespace

Command routed_command() {
  auto o = std::make_shared<RoutedFlags>();
  Command command{"routed",
                  "Routed attention, stage by stage, beside dense and PyTorch"};
  add_flags(
      command,
      {
          {"--tokens", &o->tokens, "N,...", "Lengths in tokens [32768,131072]"},
          {"--heads", &o->heads, "N", "Query heads [8]"},
          {"--kv-heads", &o->kv_heads, "N", "Key and value heads [heads]"},
          {"--head-dim", &o->head_dim, "N",
           "Dimension of queries, keys and values [128]"},
          {"--dtype", &o->dtype, "TYPE,...", "Types, of f32 and bf16 [both]"},
          {"--threads", &o->threads, "N", "Threads [every core]"},
          {"--density", &o->density, "X",
           "Active tiles over causal tiles: what --top is found for [0.125]"},
          {"--top", &o->top, "N",
           "Blocks that a query picks [what comes nearest]"},
          {"--meaning", &o->meaning, "NAME",
           "Keys that are read: exact (each query attends to its own picks) or "
           "union (to its tile row's) [exact]"},
          {"--spread", &o->spread, "X",
           "Noise of the inputs around their centroids [0.02]"},
          {"--seed", &o->seed, "N",
           "Seed of the inputs; batch b draws with seed + b [0]"},
          {"--rounds", &o->rounds, "N", "Batches of each length [3]"},
          {"--dense-heads", &o->dense_heads, "N",
           "Heads that dense attention is timed on, then scaled [all; 1 above "
           "65536 tokens]"},
          {"--growth", &o->growth, "N,...",
           "Lengths at which routing alone is timed, at the first length's "
           "top, or off [from half the shortest, doubled]"},
          {"--peers", &o->peers, "FOLDER",
           "Run the script of this folder (bench/peers) in the interpreter "
           "that TESSERA_TORCH_PYTHON names"},
          {"--seconds", &o->seconds, "N", "Seconds of the peer's runs [2]"},
          {"--peer-limit", &o->peer_limit, "N",
           "Seconds after which the script is ended [1800]"},
          {"--json", &o->json, "", "One JSON object on stdout"},
          {"-o,--out", &o->out, "FILE", "Write the JSON here too"},
      });
  command.footer = kFooter;
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::bench
