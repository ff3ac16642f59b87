// cli/bench_attention.cc: `tessera bench attention`: the cpu lane beside its
// peers, as shares of what the machine can do.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/files.h"
#include "base/isa.h"
#include "base/npy.h"
#include "base/text.h"
#include "base/threads.h"
#include "cli/bench.h"
#include "cli/bench_peers.h"
#include "cli/bench_rows.h"
#include "cli/bench_run.h"
#include "cli/machine.h"
#include "cli/numbers.h"
#include "cli/temp_folder.h"
#include "kernels/peak/peak.h"
#include "lanes/cpu/cpu.h"
#include "lanes/tensors.h"
#include "receipt/machine.h"
#include "run/dtype_word.h"
#include "tessera/version.h"

namespace tessera::cli {
namespace {

using nlohmann::json;

// As typed.
struct Options {
  std::string tokens = "4096";
  std::string head_dim = "128";
  std::string dtype = "f32,bf16";
  std::string cases;    // empty: all
  std::string threads;  // empty: every core
  std::string seconds = "2";
  std::string peer_limit = "300";
  std::optional<std::string> mask, isa, peers, out, results;
  bool backward = false;
  bool json = false;
};

struct Settings {
  std::vector<int32_t> tokens, head_dims, threads;
  std::vector<Dtype> dtypes;
  std::vector<const AttentionCase*> cases;
  std::shared_ptr<const AttentionCase> asked;  // of --mask
  double seconds = 0;
  double peer_limit = 0;
  Isa isa = Isa::portable;
  bool isa_forced = false;
};

Result<std::vector<Dtype>> parse_dtypes(std::string_view text) {
  std::vector<Dtype> out;
  for (const std::string_view word : split(text, ',')) {
    if (word != "f32" && word != "bf16") {
      return invalid("cli", "--dtype must be of f32 and bf16, found {}",
                     in_quotes(word));
    }
    out.push_back(word == "f32" ? Dtype::f32 : Dtype::bf16);
  }
  return out;
}

Result<std::vector<const AttentionCase*>> parse_cases(std::string_view text) {
  std::vector<const AttentionCase*> out;
  if (text.empty()) {
    for (const AttentionCase& c : attention_cases()) out.push_back(&c);
    return out;
  }
  for (const std::string_view word : split(text, ',')) {
    const AttentionCase* c = find_case(word);
    if (!c) {
      return invalid("cli", "--cases must be of {}, found {}", case_names(),
                     in_quotes(word));
    }
    out.push_back(c);
  }
  return out;
}

// The one case of --mask, which no peer knows.
Result<std::shared_ptr<const AttentionCase>> asked_case(const Options& o) {
  if (!o.cases.empty() || o.peers || o.results) {
    return invalid("cli", "--mask is a case of its own, found {} beside it",
                   o.peers     ? "--peers"
                   : o.results ? "--results"
                               : "--cases");
  }
  auto mask = parse_mask(*o.mask);
  if (!mask) return mask.error();
  auto out = std::make_shared<AttentionCase>();
  out->name = "mask";
  out->mask = *o.mask;
  out->documents = mask->names.documents || mask->names.segments;
  return std::shared_ptr<const AttentionCase>(std::move(out));
}

Result<Settings> parse(const Options& o) {
  Settings s;
  auto tokens = parse_ints(o.tokens, "--tokens", 64, 1 << 20);
  if (!tokens) return tokens.error();
  auto head_dims = parse_ints(o.head_dim, "--head-dim", kDimStep, kMaxDim);
  if (!head_dims) return head_dims.error();
  auto threads = parse_ints(
      o.threads.empty() ? std::to_string(machine_threads()) : o.threads,
      "--threads", 1, kMaxThreads);
  if (!threads) return threads.error();
  auto dtypes = parse_dtypes(o.dtype);
  if (!dtypes) return dtypes.error();
  auto cases = parse_cases(o.cases);
  if (!cases) return cases.error();
  auto seconds = parse_positive(o.seconds, "--seconds");
  if (!seconds) return seconds.error();
  auto limit = parse_positive(o.peer_limit, "--peer-limit");
  if (!limit) return limit.error();
  for (const int32_t dim : *head_dims) {
    if (dim % kDimStep != 0) {
      return invalid("cli", "--head-dim must be multiples of {}, found {}",
                     kDimStep, dim);
    }
  }
  if (o.peers && !std::filesystem::is_directory(*o.peers)) {
    return invalid("cli", "--peers must be a folder, found {}",
                   in_quotes(*o.peers));
  }
  std::optional<Isa> forced;
  if (o.isa) {
    auto isa = parse_isa(*o.isa);
    if (!isa) return isa.error();
    forced = *isa;
  }
  auto isa = choose_isa(forced);
  if (!isa) return isa.error();
  s.isa = *isa;
  s.isa_forced = forced.has_value() || *isa != machine_isas().back();
  if (o.out) {
    if (auto e = check_output(*o.out); !e) return e.error();
  }
  s.tokens = std::move(*tokens);
  s.head_dims = std::move(*head_dims);
  s.threads = std::move(*threads);
  s.dtypes = std::move(*dtypes);
  s.cases = std::move(*cases);
  if (o.mask) {
    auto asked = asked_case(o);
    if (!asked) return asked.error();
    s.asked = *asked;
    s.cases = {s.asked.get()};
  }
  s.seconds = *seconds;
  s.peer_limit = *limit;
  return s;
}

// Where the peers find the document ids.
Result<std::string> write_ids(const TempFolder& folder, int64_t tokens) {
  const std::string path = folder.file(fmt::format("documents{}.npy", tokens));
  const int64_t shape[] = {tokens};
  auto bytes = write_npy(shape, packed_ids(tokens));
  if (!bytes) return bytes.error();
  if (auto w = write_file(path, *bytes); !w) return w.error();
  return path;
}

void progress(const std::string& text) {
  if (!isatty(STDERR_FILENO)) return;
  fmt::print(stderr, "\r\033[K{}", text);
  std::fflush(stderr);
}

// One length, head dim, dtype and number of threads.
struct Group {
  int64_t tokens = 0;
  int64_t head_dim = 0;
  Dtype dtype = Dtype::f32;
  int threads = 1;
  Peaks peaks;
  std::vector<BenchRow> rows;
  std::vector<PeerRun> peers;
};

void add_rows(Group& group, const Options& o, const Settings& s) {
  for (const Direction d : {Direction::forward, Direction::backward}) {
    if (d == Direction::backward && !o.backward) continue;
    for (const AttentionCase* c : s.cases) {
      // Its own length, and bytes are what it is about: once, narrow.
      if (c->decode &&
          (d == Direction::backward || group.dtype != Dtype::bf16 ||
           group.tokens != s.tokens.front())) {
        continue;
      }
      BenchRow row;
      row.what = c;
      row.dtype = group.dtype;
      row.direction = d;
      row.tokens = group.tokens;
      row.head_dim = group.head_dim;
      row.threads = group.threads;
      row.peaks = group.peaks;
      row.every_peer_ran = o.peers.has_value();
      group.rows.push_back(row);
    }
  }
}

Result<void> measure_rows(Group& group, const Settings& s, double seconds) {
  for (BenchRow& row : group.rows) {
    progress(fmt::format("{} {} {}, {} tokens", row.what->name,
                         dtype_word(row.dtype), to_string(row.direction),
                         row.tokens));
    if (row.dtype == Dtype::bf16 && s.isa != Isa::avx512bf16 && !s.isa_forced) {
      row.why = "this machine has no AVX512-BF16";
      continue;
    }
    auto times = measure_ours(row, s.isa, seconds);
    if (!times) return times.error();
    row.ours = row.ours ? joined(*row.ours, *times) : std::move(*times);
  }
  progress("");
  return {};
}

// Ours, the peers one after the other, and ours again: a machine that slows
// down or speeds up meanwhile favours nobody.
Result<void> measure_group(Group& group, const Options& o, const Settings& s,
                           const TempFolder& folder) {
  if (!o.peers) return measure_rows(group, s, s.seconds);
  if (auto r = measure_rows(group, s, s.seconds / 2); !r) return r;
  PeerRequest request;
  request.folder = *o.peers;
  auto docs = write_ids(folder, group.tokens);
  if (!docs) return docs.error();
  request.docs = *docs;
  for (const BenchRow& row : group.rows) {
    if (row.direction == Direction::forward) {
      request.cases.push_back(row.what->name);
    }
  }
  request.dtype = group.dtype;
  request.tokens = group.tokens;
  request.head_dim = group.head_dim;
  request.threads = group.threads;
  request.backward = o.backward;
  request.isa = s.isa;
  request.seconds = s.seconds;
  request.limit = s.peer_limit;
  for (const PeerScript& script : peer_scripts()) {
    progress(fmt::format("peer {}, {} tokens", script.name, group.tokens));
    group.peers.push_back(run_peer(script, request));
    join_peers(group.peers.back(), group.rows);
  }
  progress("");
  return measure_rows(group, s, s.seconds / 2);
}

void print_group(const Group& group) {
  fmt::print("{} tokens, head dim {}, {}, {} thread{}\n", group.tokens,
             group.head_dim, dtype_word(group.dtype), group.threads,
             group.threads == 1 ? "" : "s");
  fmt::print("{}", table_header());
  for (const BenchRow& row : group.rows) fmt::print("{}", table_line(row));
  for (const PeerRun& p : group.peers) {
    if (!p.why.empty()) fmt::print("{}: not measured: {}\n", p.script, p.why);
  }
  fmt::print("\n");
  std::fflush(stdout);
}

json peaks_json(const Peaks& peaks, int threads) {
  return {{"threads", threads},
          {"fma_gflops", peaks.fma_gflops},
          {"bf16_dot_gflops", peaks.bf16_dot_gflops},
          {"read_gbytes", peaks.read_gbytes}};
}

json peer_runs_json(const std::vector<Group>& groups) {
  json out = json::array();
  for (const Group& g : groups) {
    for (const PeerRun& p : g.peers) {
      out.push_back({{"script", p.script},
                     {"tokens", g.tokens},
                     {"head_dim", g.head_dim},
                     {"dtype", dtype_word(g.dtype)},
                     {"threads", g.threads},
                     {"why", p.why},
                     {"versions", p.versions},
                     {"seconds", p.seconds},
                     {"other_cores", p.other_cores}});
    }
  }
  return out;
}

// Whether the machine was otherwise idle, as far as we could see.
bool was_quiet(const std::vector<Group>& groups) {
  double most = 0;
  for (const Group& g : groups) {
    for (const PeerRun& p : g.peers) most = std::max(most, p.other_cores);
    for (const BenchRow& row : g.rows) {
      if (row.ours) most = std::max(most, row.ours->other_cores);
    }
  }
  return most < 0.1;
}

Result<void> save(const Options& o, const json& result) {
  const std::string text = result.dump(2) + "\n";
  if (o.out) {
    if (auto e = write_file(*o.out, text); !e) return e;
  }
  if (!o.results) return {};
  const auto folder = std::filesystem::path(*o.results) / slug(cpu_model());
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) {
    return io_error("bench", "{} must be a folder, found: {}",
                    in_quotes(folder.string()), failed.message());
  }
  const std::string path = (folder / "attention.json").string();
  if (auto e = write_file(path, text); !e) return e;
  if (!o.json) fmt::print("{}\n", path);
  return {};
}

Result<int> run(const Options& o) {
  auto settings = parse(o);
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
        cpu_model(), to_string(settings->isa));
  }
  std::vector<Group> groups;
  json peaks = json::array();
  json rows = json::array();
  for (const int32_t threads : settings->threads) {
    progress("peaks of the machine");
    const Peaks measured = measure_peaks(threads);
    progress("");
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
          Group group;
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
                       {"cpu", cpu_model()},
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
  if (auto saved = save(o, result); !saved) return saved.error();
  return kOk;
}

}  // namespace

Command bench_attention_command() {
  auto o = std::make_shared<Options>();
  Command command{"attention",
                  "The cpu lane beside its peers and the machine's peaks"};
  add_flags(
      command,
      {
          {"--tokens", &o->tokens, "N,...", "Lengths [4096]"},
          {"--head-dim", &o->head_dim, "N,...", "Head dims [128]"},
          {"--dtype", &o->dtype, "TYPE,...", "Of f32 and bf16 [both]"},
          {"--threads", &o->threads, "N,...",
           "Numbers of threads [every core]"},
          {"--cases", &o->cases, "CASE,...", "Of " + case_names() + " [all]"},
          {"--mask", &o->mask, "EXPR",
           "This mask alone, on drawn documents where it names them; "
           "routed(...) routes by q and k, which are then clustered"},
          {"--backward", &o->backward, "",
           "Forward and backward too, as rows of their own"},
          {"--isa", &o->isa, "ISA",
           "Our instructions, and the widest of the peers' [best]"},
          {"--seconds", &o->seconds, "N", "Of runs for each measurement [2]"},
          {"--peers", &o->peers, "FOLDER",
           "Run the scripts of this folder (bench/peers) in the interpreters "
           "that TESSERA_TORCH_PYTHON and TESSERA_ORT_PYTHON name"},
          {"--peer-limit", &o->peer_limit, "N",
           "Seconds after which a script is ended [300]"},
          {"--json", &o->json, "", "One JSON object on stdout"},
          {"-o,--out", &o->out, "FILE", "Write the JSON here too"},
          {"--results", &o->results, "FOLDER",
           "Write it as FOLDER/<this CPU>/attention.json too (bench/results)"},
      });
  command.footer =
      "bench/README.md tells how to install the peers;\n"
      "bench/plot_attention.py draws the JSON.";
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::cli
