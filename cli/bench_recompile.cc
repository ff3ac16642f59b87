// cli/bench_recompile.cc: `tessera bench recompile`: how often the compiler
// runs while every batch differs.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "base/threads.h"
#include "base/timed.h"
#include "cli/attention_data.h"
#include "cli/bench.h"
#include "cli/bench_cases.h"
#include "cli/numbers.h"
#include "cli/progress.h"
#include "cli/ragged_batches.h"
#include "cli/random_inputs.h"
#include "cli/recompile_peer.h"
#include "lanes/cpu/cpu.h"
#include "lanes/reference/judge.h"
#include "lanes/xla/lane.h"
#include "receipt/machine.h"
#include "run/dtype_word.h"
#include "tessera/version.h"

namespace tessera::cli {
namespace {

using nlohmann::json;

constexpr int64_t kQueryRows = 64;
constexpr int64_t kKeyRows = 16;

// As typed.
struct Options {
  std::string batches = "200";
  std::string tokens = "512";
  std::string dtype = "f32";
  std::string seed = "0";
  std::string plugin = "xla_cpu_pjrt";
  std::string device = "0";
  std::string max_compiles = "0";
  std::string peer_limit = "600";
  std::optional<std::string> cache, peers, out;
  bool cold = false;
  bool json = false;
};

struct Settings {
  int64_t batches = 0;
  RaggedSizes sizes;
  AttentionShape shape;
  Dtype dtype = Dtype::f32;
  uint64_t seed = 0;
  XlaOptions xla;
  double peer_limit = 0;
};

Result<Settings> parse(const Options& o) {
  Settings s;
  auto batches = parse_int(o.batches, "--batches", 1, 1'000'000);
  if (!batches) return batches.error();
  auto tokens = parse_int(o.tokens, "--tokens", 128, 1 << 16);
  if (!tokens) return tokens.error();
  auto seed = parse_seed(o.seed);
  if (!seed) return seed.error();
  auto device = parse_device(o.device);
  if (!device) return device.error();
  auto compiles = parse_int(o.max_compiles, "--max-compiles", 0, INT64_MAX);
  if (!compiles) return compiles.error();
  auto limit = parse_positive(o.peer_limit, "--peer-limit");
  if (!limit) return limit.error();
  if (o.dtype != "f32" && o.dtype != "bf16") {
    return invalid("cli", "--dtype must be f32 or bf16, found {}",
                   in_quotes(o.dtype));
  }
  if (o.peers && !std::filesystem::is_directory(*o.peers)) {
    return invalid("cli", "--peers must be a folder, found {}",
                   in_quotes(*o.peers));
  }
  if (o.cache && o.cache->empty()) {
    return invalid("cli", "--cache must be a folder, found ''");
  }
  if (o.out) {
    if (auto e = check_output(*o.out); !e) return e.error();
  }
  s.batches = *batches;
  s.sizes.tokens = *tokens;
  s.shape.heads = 4;
  s.shape.kv_heads = 2;
  s.shape.head_dim = s.shape.v_head_dim = 32;
  s.dtype = o.dtype == "f32" ? Dtype::f32 : Dtype::bf16;
  s.seed = *seed;
  s.xla.plugin = o.plugin;
  s.xla.device = *device;
  s.xla.max_compiles = *compiles;
  s.xla.cache_folder = o.cache.value_or("");
  s.peer_limit = *limit;
  return s;
}

// All that the batches added up to.
struct Totals {
  int64_t batches = 0;
  int64_t compiles = 0, disk_hits = 0, memory_hits = 0;
  int64_t compiles_in_loop = 0;  // after the warm-up
  std::set<std::string> contracts, shapes;
  double plan_ms = 0, compile_ms = 0, transfer_ms = 0, xla_ms = 0, cpu_ms = 0;
  int64_t legal_pairs = 0;  // of one head
  bool all_rows = true;
  int64_t rows = 0;  // that were judged
  double max_ratio = 0;
  std::string worst;
  std::set<std::string> warnings;

  bool passed() const { return max_ratio <= 1; }
  // Every program was come by once, and none was compiled but for its contract.
  bool one_each() const {
    return compiles + disk_hits == static_cast<int64_t>(contracts.size()) &&
           memory_hits + compiles + disk_hits >= 2 * batches;
  }
};

void add(const XlaRun& run, Totals& t) {
  t.contracts.insert(run.contract.key);
  t.compiles += run.compiles;
  t.disk_hits += run.disk_hits;
  t.memory_hits += run.memory_hits;
  t.compile_ms += run.compile_ms;
  t.transfer_ms += run.transfer_ms;
  t.xla_ms += run.run_ms;
  t.warnings.insert(run.warnings.begin(), run.warnings.end());
}

// Compiles all programs that the batches will need.
Result<void> warm_up(const XlaLane& lane, const Settings& s,
                     const std::vector<RaggedBatch>& batches, Totals& t) {
  Progress progress("warming up");
  std::set<std::string> seen;
  for (const RaggedBatch& b : batches) {
    auto contract = make_ceiling_contract(b.request, b.facts());
    if (!contract) return contract.error();
    if (!seen.insert(contract->key).second) continue;
    for (const bool backward : {false, true}) {
      AttentionCall call;
      call.shape = s.shape;
      call.dtype = s.dtype;
      call.backward = backward;
      auto ran = lane.warm(b.request, b.facts(), call);
      if (!ran) return ran.error();
      add(*ran, t);
    }
  }
  return {};
}

void fill(AttentionData& data, const RaggedBatch& b, const Settings& s,
          uint64_t seed) {
  data.batch = s.sizes.rows;
  data.q_len = data.kv_len = b.length();
  data.shape = s.shape;
  data.dtype = s.dtype;
  data.backward = true;
  data.allocate();
  fill_inputs(data, seed);
}

// Both directions of what a lane wrote.
Result<void> judge(const char* lane, bool flushes, int64_t index,
                   const RaggedBatch& b, AttentionData& data, Totals& t) {
  JudgeOptions options;
  options.seed = static_cast<uint64_t>(index);
  options.flushes = flushes;
  if (!can_judge_all(b.request, data.shape)) {
    t.all_rows = false;
    options.query_rows = kQueryRows;
    options.key_rows = kKeyRows;
  }
  const auto note = [&](const Verdict& v) {
    t.rows += v.rows;
    if (v.max_ratio <= t.max_ratio && !t.worst.empty()) return;
    t.max_ratio = v.max_ratio;
    t.worst = fmt::format("{} lane, batch {}: {}", lane, index, v.worst);
  };
  auto forward = judge_forward(b.request, b.facts(), data.shape,
                               data.forward_tensors(), options);
  if (!forward) return forward.error();
  note(*forward);
  auto backward = judge_backward(b.request, b.facts(), data.shape,
                                 data.backward_tensors(), options);
  if (!backward) return backward.error();
  note(*backward);
  return {};
}

Result<void> run_xla(const XlaLane& lane, const Batch& batch,
                     AttentionData& data, Totals& t) {
  const int64_t before = t.compiles;
  auto forward = lane.forward(batch, data.shape, data.forward_tensors());
  if (!forward) return forward.error();
  add(*forward, t);
  auto backward = lane.backward(batch, data.shape, data.backward_tensors());
  if (!backward) return backward.error();
  add(*backward, t);
  t.compiles_in_loop += t.compiles - before;
  return {};
}

Result<void> run_cpu(const Batch& batch, AttentionData& data, Totals& t) {
  return timed(t.cpu_ms, [&]() -> Result<void> {
    auto work = cpu_prepare(batch);
    if (!work) return work.error();
    auto forward = cpu_forward(*work, data.shape, data.forward_tensors());
    if (!forward) return forward.error();
    auto backward = cpu_backward(*work, data.shape, data.backward_tensors());
    if (!backward) return backward.error();
    return {};
  });
}

Result<void> run_batches(const XlaLane& lane, const Settings& s,
                         const std::vector<RaggedBatch>& batches, Totals& t) {
  Progress progress("batches");
  AttentionData data;
  for (const RaggedBatch& b : batches) {
    const int64_t index = t.batches++;
    progress.show(static_cast<double>(index) / static_cast<double>(s.batches));
    auto batch = BorrowedBatch::make(b.request, b.facts());
    if (!batch) return batch.error();
    t.plan_ms += batch->plan_ms();
    t.shapes.insert(make_ceiling_contract(b.request, b.facts()).value().key);
    for (const int64_t n : batch->plan().legal_pairs) t.legal_pairs += n;
    for (const bool xla : {true, false}) {
      fill(data, b, s, static_cast<uint64_t>(index));
      auto ran =
          xla ? run_xla(lane, *batch, data, t) : run_cpu(*batch, data, t);
      if (!ran) return ran;
      auto judged = judge(xla ? "xla" : "cpu", xla, index, b, data, t);
      if (!judged) return judged;
    }
  }
  return {};
}

json result_json(const Options& o, const Settings& s, const PluginPlace& place,
                 const Totals& t, const std::vector<RecompilePeer>& peers) {
  json out = {
      {"version", kVersion},
      {"cpu", cpu_model()},
      {"plugin", std::filesystem::path(place.plugin).filename().string()},
      {"platform", place.platform},
      {"device", place.device},
      {"batches", t.batches},
      {"rows_of_a_batch", s.sizes.rows},
      {"tokens", s.sizes.tokens},
      {"heads", s.shape.heads},
      {"kv_heads", s.shape.kv_heads},
      {"head_dim", s.shape.head_dim},
      {"dtype", dtype_word(s.dtype)},
      {"seed", s.seed},
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
  };
  for (const RecompilePeer& p : peers) out["peers"].push_back(to_json(p));
  return out;
}

void print(const Options& o, const Settings& s, const PluginPlace& place,
           const Totals& t, const std::vector<RecompilePeer>& peers) {
  const auto each = [&](double ms) {
    return ms / static_cast<double>(t.batches);
  };
  fmt::print(
      "Batches of {} rows of {} to {} tokens in packed documents, {} heads "
      "({} K/V),\nhead dim {}, {}, forward and backward; {}, {}\n\n",
      s.sizes.rows, s.sizes.tokens * 7 / 16, s.sizes.tokens, s.shape.heads,
      s.shape.kv_heads, s.shape.head_dim, dtype_word(s.dtype), cpu_model(),
      place.device);
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

Result<int> run(const Options& o) {
  auto settings = parse(o);
  if (!settings) return settings.error();
  const Settings& s = *settings;
  auto lane = XlaLane::open(s.xla);
  if (!lane) return lane.error();
  std::vector<RaggedBatch> batches;
  batches.reserve(static_cast<size_t>(s.batches));
  for (int64_t i = 0; i < s.batches; ++i) {
    batches.push_back(ragged_batch(s.sizes, s.seed, i));
  }
  Totals totals;
  if (!o.cold) {
    auto warmed = warm_up(*lane, s, batches, totals);
    if (!warmed) return warmed.error();
  }
  auto ran = run_batches(*lane, s, batches, totals);
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
  const json result = result_json(o, s, lane->place(), totals, peers);
  if (o.out) {
    if (auto e = write_file(*o.out, result.dump(2) + "\n"); !e) {
      return e.error();
    }
  }
  if (o.json) {
    fmt::print("{}\n", result.dump(2));
  } else {
    print(o, s, lane->place(), totals, peers);
  }
  const bool stray = !o.cold && totals.compiles_in_loop > 0;
  if (!totals.passed()) {
    fmt::print(stderr,
               "tessera: [bench] every result must be within its bound, found "
               "{:.3g} of it for {}\n",
               totals.max_ratio, totals.worst);
  }
  if (!totals.one_each() || stray) {
    fmt::print(stderr,
               "tessera: [bench] each kernel contract must be compiled once, "
               "found {} compiles ({} after the warm-up) and {} from disk for "
               "{} contracts\n",
               totals.compiles, totals.compiles_in_loop, totals.disk_hits,
               totals.contracts.size());
  }
  return totals.passed() && totals.one_each() && !stray ? kOk : kFailed;
}

}  // namespace

Command bench_recompile_command() {
  auto o = std::make_shared<Options>();
  Command command{"recompile",
                  "How often the xla lane compiles while every batch differs"};
  add_flags(
      command,
      {
          {"--batches", &o->batches, "N", "Batches, no two alike [200]"},
          {"--tokens", &o->tokens, "N", "The longest batch row [512]"},
          {"--dtype", &o->dtype, "TYPE", "f32 or bf16 [f32]"},
          {"--seed", &o->seed, "N", "Of the batches [0]"},
          {"--plugin", &o->plugin, "NAME",
           "A file or a known name [xla_cpu_pjrt]"},
          {"--device", &o->device, "N", "Of the plugin's devices [0]"},
          {"--cache", &o->cache, "FOLDER",
           "Keep what is compiled there; a second run compiles nothing "
           "[nowhere]"},
          {"--max-compiles", &o->max_compiles, "N",
           "One more is an error that says what varied; 0 is no limit [0]"},
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
      "every result of both lanes is within its bound of fp64.";
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::cli
