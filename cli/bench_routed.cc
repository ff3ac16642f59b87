// cli/bench_routed.cc: `tessera bench routed`: clustered sparse attention, from
// q and k to its output, beside dense causal attention and PyTorch.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
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
#include "base/text.h"
#include "base/threads.h"
#include "cli/bench.h"
#include "cli/bench_cases.h"
#include "cli/machine.h"
#include "cli/numbers.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/routed_case.h"
#include "cli/routed_peer.h"
#include "cli/routed_rows.h"
#include "lanes/tensors.h"
#include "receipt/machine.h"
#include "route/settings.h"
#include "run/dtype_word.h"
#include "tessera/version.h"

namespace tessera::cli {
namespace {

using nlohmann::json;

// Above it, dense attention is timed on one head.
constexpr int64_t kMostDense = 65536;
constexpr int64_t kMostRoutedTokens = int64_t{1} << 20;

// As typed.
struct Options {
  std::string tokens = "32768,131072";
  std::string heads = "8";
  std::string head_dim = "128";
  std::string dtype = "f32,bf16";
  std::string density = "0.125";
  std::string spread = "0.02";
  std::string meaning = "exact";
  std::string seed = "0";
  std::string rounds = "3";
  std::string seconds = "2";
  std::string peer_limit = "1800";
  std::optional<std::string> kv_heads, threads, top, dense_heads, growth, peers,
      out;
  bool json = false;
};

struct Settings {
  RoutedSizes sizes;
  std::vector<int32_t> tokens, growth;
  std::vector<Dtype> dtypes;  // of the tables; sizes has the first
  double density = 0;
  std::optional<int64_t> top, dense_heads;
  int64_t rounds = 0;
  RoutedPeerRequest peer;
};

Result<void> parse_sizes(const Options& o, Settings& s) {
  auto heads = parse_int(o.heads, "--heads", 1, 1024);
  if (!heads) return heads.error();
  auto kv_heads =
      parse_int(o.kv_heads.value_or(o.heads), "--kv-heads", 1, 1024);
  if (!kv_heads) return kv_heads.error();
  if (*heads % *kv_heads != 0) {
    return invalid("cli", "--kv-heads must divide --heads, found {} for {}",
                   *kv_heads, *heads);
  }
  auto dim = parse_int(o.head_dim, "--head-dim", kDimStep, kMaxDim);
  if (!dim) return dim.error();
  if (*dim % kDimStep != 0) {
    return invalid("cli", "--head-dim must be a multiple of {}, found {}",
                   kDimStep, *dim);
  }
  for (const std::string_view word : split(o.dtype, ',')) {
    if (word != "f32" && word != "bf16") {
      return invalid("cli", "--dtype must be of f32 and bf16, found {}",
                     in_quotes(word));
    }
    s.dtypes.push_back(word == "f32" ? Dtype::f32 : Dtype::bf16);
  }
  auto meaning = parse_route_meaning(o.meaning);
  if (!meaning) return meaning.error();
  auto spread = parse_positive(o.spread, "--spread");
  if (!spread) return spread.error();
  auto seed = parse_seed(o.seed);
  if (!seed) return seed.error();
  s.sizes.threads = machine_threads();
  if (o.threads) {
    auto threads = parse_int(*o.threads, "--threads", 1, kMaxThreads);
    if (!threads) return threads.error();
    s.sizes.threads = static_cast<int>(*threads);
  }
  s.sizes.shape.heads = *heads;
  s.sizes.shape.kv_heads = *kv_heads;
  s.sizes.shape.head_dim = s.sizes.shape.v_head_dim = *dim;
  s.sizes.dtype = s.dtypes.front();
  s.sizes.meaning = *meaning;
  s.sizes.spread = *spread;
  s.sizes.seed = *seed;
  if (o.dense_heads) {
    auto n = parse_int(*o.dense_heads, "--dense-heads", 1, *heads);
    if (!n) return n.error();
    const int64_t group = *heads / *kv_heads;
    if (*n > group && *n % group != 0) {
      return invalid("cli",
                     "--dense-heads must be whole groups of {} heads, or less "
                     "than one, found {}",
                     group, *n);
    }
    s.dense_heads = *n;
  }
  return {};
}

Result<std::vector<int32_t>> parse_lengths(const std::string& text,
                                           std::string_view flag) {
  auto out = parse_ints(text, flag, kRoutedBlock, kMostRoutedTokens);
  if (!out) return out;
  for (const int32_t n : *out) {
    if (n % kRoutedBlock == 0) continue;
    return invalid("cli", "{} must be multiples of the block {}, found {}",
                   flag, kRoutedBlock, n);
  }
  return out;
}

Result<Settings> parse(const Options& o) {
  Settings s;
  auto tokens = parse_lengths(o.tokens, "--tokens");
  if (!tokens) return tokens.error();
  s.tokens = *tokens;
  if (auto e = parse_sizes(o, s); !e) return e.error();
  auto density = parse_positive(o.density, "--density");
  if (!density) return density.error();
  if (*density > 1) {
    return invalid("cli", "--density must be at most 1, found {:g}", *density);
  }
  s.density = *density;
  if (o.top) {
    auto top = parse_int(*o.top, "--top", 1, kMaxTop);
    if (!top) return top.error();
    s.top = *top;
  }
  auto rounds = parse_int(o.rounds, "--rounds", 1, 1000);
  if (!rounds) return rounds.error();
  s.rounds = *rounds;
  if (o.growth && *o.growth != "off") {
    auto growth = parse_lengths(*o.growth, "--growth");
    if (!growth) return growth.error();
    s.growth = *growth;
    std::sort(s.growth.begin(), s.growth.end());
  } else if (!o.growth) {
    const auto [least, most] =
        std::minmax_element(s.tokens.begin(), s.tokens.end());
    const int32_t half = *least / 2;
    for (int32_t n = half % kRoutedBlock == 0 ? half : *least; n <= *most;
         n *= 2) {
      s.growth.push_back(n);
    }
  }
  auto seconds = parse_positive(o.seconds, "--seconds");
  if (!seconds) return seconds.error();
  auto limit = parse_positive(o.peer_limit, "--peer-limit");
  if (!limit) return limit.error();
  if (o.peers && !std::filesystem::is_directory(*o.peers)) {
    return invalid("cli", "--peers must be a folder, found {}",
                   in_quotes(*o.peers));
  }
  s.peer.folder = o.peers.value_or("");
  s.peer.threads = s.sizes.threads;
  auto isa = choose_isa({});
  if (!isa) return isa.error();
  s.peer.isa = *isa;
  s.peer.seconds = *seconds;
  s.peer.limit = *limit;
  if (o.out) {
    if (auto e = check_output(*o.out); !e) return e.error();
  }
  return s;
}

// Blocks that a query picks, at most.
double most_top(const Settings& s, int64_t tokens) {
  if (s.top) return static_cast<double>(*s.top);
  const double blocks = static_cast<double>(tokens) / kRoutedBlock;
  return std::max(1.0, s.density * blocks);
}

// Of all picks of a run, in one array.
double pick_bytes(const Settings& s, int64_t tokens, double top) {
  return 4 * static_cast<double>(s.sizes.shape.heads) *
         static_cast<double>(tokens) * top;
}

Result<void> check_memory(const Settings& s) {
  const auto check = [](double needed, int64_t tokens) -> Result<void> {
    if (needed <= static_cast<double>(available_memory())) return {};
    return over_limit(
        "bench",
        "arrays and picks must fit the memory that is free, found "
        "{} bytes for {} tokens",
        with_unit(needed), tokens);
  };
  RoutedSizes sizes = s.sizes;
  sizes.dtype =
      std::find(s.dtypes.begin(), s.dtypes.end(), Dtype::f32) != s.dtypes.end()
          ? Dtype::f32
          : Dtype::bf16;
  for (const int32_t tokens : s.tokens) {
    double needed = RoutedCase::bytes(sizes, tokens, true);
    // The file for the peer, while it is made; then the peer has its own.
    if (!s.peer.folder.empty()) needed *= 3;
    // Picks with their slots, unions and intervals, of which two runs are held.
    needed += 2 * 6 * pick_bytes(s, tokens, most_top(s, tokens));
    if (auto e = check(needed, tokens); !e) return e;
  }
  const double top = most_top(s, s.tokens.front());
  for (const int32_t tokens : s.growth) {
    // Picks, slots and the unions that attention runs on, which are wider;
    // how much, routing itself finds before it makes them.
    const double needed = RoutedCase::bytes(s.sizes, tokens, false) +
                          3 * pick_bytes(s, tokens, top);
    if (auto e = check(needed, tokens); !e) return e;
  }
  return {};
}

// The number of picks whose plan comes nearest to the density, on the case's
// batch. Density grows with it.
Result<int64_t> find_top(const RoutedCase& c, double wanted) {
  const int64_t rows = c.tokens() / kRoutedBlock;
  const double tiles =
      static_cast<double>(rows) * static_cast<double>(rows + 1) / 2;
  // Were the union of a row no wider than its picks: a row r has r + 1 blocks.
  int64_t top = 1;
  const auto tiles_of = [&](int64_t n) {
    return static_cast<double>(n) * static_cast<double>(rows) -
           static_cast<double>(n) * static_cast<double>(n - 1) / 2;
  };
  const int64_t most = std::min(rows, kMaxTop);
  while (top < most && tiles_of(top) < wanted * tiles) ++top;
  std::optional<double> above, below;  // densities of top + 1 and top - 1
  while (true) {
    auto run = c.route(top, false);
    if (!run) return run.error();
    const double found = c.density(*run);
    if (found > wanted) {
      if (below) return wanted - *below < found - wanted ? top - 1 : top;
      if (top == 1) return top;
      above = found;
      --top;
    } else {
      if (above) return *above - wanted < wanted - found ? top + 1 : top;
      if (top == most) return top;
      below = found;
      ++top;
    }
  }
}

void add(const RouteRecall& more, RouteRecall& to) {
  to.picks += more.picks;
  to.found += more.found;
  to.worst = std::min(to.worst, more.worst);
}

// A batch each round; hierarchical routing and dense attention in turn with the
// whole, so that a machine that slows down favours nobody.
Result<void> measure_batch(RoutedCase& c, int64_t batch, const Settings& s,
                           RoutedTable& t) {
  if (batch > 0) c.draw(batch);
  auto run = c.route(t.top, false);
  if (!run) return run.error();
  if (auto e = c.attend(*run); !e) return e;
  t.exhaustive.push_back(run->times);
  auto key = c.contract(*run, t.top);
  if (!key) return key.error();
  t.contracts.insert(std::move(*key));
  if (batch == 0) {
    t.counts = run->routed().counts;
    t.widest = run->routed().unions.widest;
    t.tiles = static_cast<int64_t>(run->plan().forward.entries.size());
    t.full_tiles = std::count_if(
        run->plan().forward.entries.begin(), run->plan().forward.entries.end(),
        [](Entry e) { return e.tile_class() == TileClass::full; });
    t.causal_tiles = c.causal_tiles(*run);
    const auto n = static_cast<double>(t.tokens);
    t.causal_pairs = n * (n + 1) / 2 * static_cast<double>(t.heads);
    for (const int64_t pairs : run->plan().legal_pairs) {
      t.pairs += static_cast<double>(pairs);
    }
    auto verdict = c.judge(*run);
    if (!verdict) return verdict.error();
    t.check = std::move(*verdict);
    if (!s.peer.folder.empty()) {
      Progress progress(fmt::format("PyTorch, {} tokens", t.tokens));
      t.peer = run_routed_peer(s.peer, c.data(), *run);
    }
  }
  auto few = c.route(t.top, true);
  if (!few) return few.error();
  t.hierarchical.push_back(few->times);
  t.hierarchical_tiles =
      static_cast<int64_t>(few->plan().forward.entries.size());
  auto recall = route_recall(few->routed(), run->routed());
  if (!recall) return recall.error();
  add(*recall, t.recall);
  auto dense = c.dense(t.dense_heads);
  if (!dense) return dense.error();
  t.dense_ms.push_back(*dense);
  return {};
}

Result<RoutedTable> measure(int64_t tokens, Dtype dtype, const Settings& s) {
  RoutedTable t;
  t.tokens = tokens;
  t.dtype = dtype;
  t.heads = s.sizes.shape.heads;
  t.dense_heads = s.dense_heads.value_or(tokens > kMostDense ? 1 : t.heads);
  RoutedSizes sizes = s.sizes;
  sizes.dtype = dtype;
  RoutedCase c(sizes, tokens, true);
  c.draw(0);
  t.inputs = c.clusters(0).describe();
  const OtherCores others;
  {
    // Starts the threads and touches the memory too.
    Progress progress(fmt::format("{} tokens", tokens));
    auto top = s.top ? *s.top : find_top(c, s.density);
    if (!top) return top.error();
    t.top = *top;
    auto warm = c.route(t.top, false);
    if (!warm) return warm.error();
    if (auto e = c.attend(*warm); !e) return e.error();
  }
  for (int64_t batch = 0; batch < s.rounds; ++batch) {
    Progress progress(fmt::format("{} tokens, batch {}", tokens, batch + 1));
    if (auto e = measure_batch(c, batch, s, t); !e) return e.error();
  }
  t.other_cores = others.so_far();
  return t;
}

Result<RoutedGrowth> measure_growth(const Settings& s, int64_t top) {
  RoutedGrowth growth;
  growth.dtype = s.sizes.dtype;
  growth.top = top;
  RoutedSizes sizes = s.sizes;
  sizes.meaning = RouteMeaning::tile_union;
  for (const int32_t tokens : s.growth) {
    Progress progress(fmt::format("routing of {} tokens", tokens));
    RoutedCase c(sizes, tokens, false);
    c.draw(0);
    for (const bool hierarchical : {false, true}) {
      std::vector<RoutedTimes> runs;
      // The first one does not count.
      for (int64_t round = 0; round <= s.rounds; ++round) {
        auto run = c.route(top, hierarchical);
        if (!run) return run.error();
        if (round > 0) runs.push_back(run->times);
      }
      growth.rows.push_back({tokens, hierarchical, median_of(runs)});
    }
  }
  return growth;
}

Result<int> run(const Options& o) {
  auto settings = parse(o);
  if (!settings) return settings.error();
  const Settings& s = *settings;
  const Isa isa = s.peer.isa;
  if (auto e = check_memory(s); !e) return e.error();
  const AttentionShape& shape = s.sizes.shape;
  if (!o.json) {
    fmt::print(
        "Routed attention on {}, {}, {} thread{}: heads {} on {} of K and V, "
        "head dim {}.\ncausal & routed(top, {}) by MoBA's rule, {}; "
        "forward, from q, k and v to the output\n\n",
        cpu_model(), to_string(isa), s.sizes.threads,
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
      fmt::print(stderr,
                 "tessera: [bench] every result must be within its bound, "
                 "found {:.3g} of it for {} tokens, {}: {}\n",
                 table->check.max_ratio, tokens, dtype_word(dtype),
                 table->check.worst);
    }
  }
  const OtherCores others_growing;
  auto growth = measure_growth(s, *top);
  if (!growth) return growth.error();
  busiest = std::max(busiest, others_growing.so_far());
  if (!o.json && !growth->rows.empty()) {
    fmt::print("{}", growth_text(*growth));
  }
  const bool quiet = busiest < 0.1;
  if (!o.json && !quiet) {
    fmt::print(
        "Others were at work on this machine: figures are provisional.\n");
  }
  const json result = {{"bench", "routed"},
                       {"schema", 1},
                       {"version", kVersion},
                       {"cpu", cpu_model()},
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
  if (o.out) {
    if (auto e = write_file(*o.out, result.dump(2) + "\n"); !e) {
      return e.error();
    }
  }
  if (o.json) fmt::print("{}\n", result.dump());
  return passed ? kOk : kFailed;
}

constexpr const char* kFooter =
    "Examples:\n"
    "  tessera bench routed\n"
    "  tessera bench routed --peers bench/peers -o routed.json\n"
    "  tessera bench routed --tokens 8192 --rounds 1 --growth off\n"
    "\n"
    "bench/README.md tells what is measured, docs/routing.md what the stages "
    "mean.";

}  // namespace

Command bench_routed_command() {
  auto o = std::make_shared<Options>();
  Command command{"routed",
                  "Routed attention, stage by stage, beside dense and PyTorch"};
  add_flags(
      command,
      {
          {"--tokens", &o->tokens, "N,...", "Lengths [32768,131072]"},
          {"--heads", &o->heads, "N", "Query heads [8]"},
          {"--kv-heads", &o->kv_heads, "N", "Key and value heads [heads]"},
          {"--head-dim", &o->head_dim, "N",
           "Of queries, keys and values [128]"},
          {"--dtype", &o->dtype, "TYPE,...", "Of f32 and bf16 [both]"},
          {"--threads", &o->threads, "N", "[every core]"},
          {"--density", &o->density, "X",
           "Active tiles over causal tiles: what --top is found for [0.125]"},
          {"--top", &o->top, "N",
           "Blocks that a query picks [what comes nearest]"},
          {"--meaning", &o->meaning, "NAME",
           "exact (each query attends to its own picks) or union (to its tile "
           "row's) [exact]"},
          {"--spread", &o->spread, "X",
           "Noise of the inputs around their centroids [0.02]"},
          {"--seed", &o->seed, "N",
           "Of the inputs; batch b draws with seed + b [0]"},
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
          {"--seconds", &o->seconds, "N", "Of the peer's runs [2]"},
          {"--peer-limit", &o->peer_limit, "N",
           "Seconds after which the script is ended [1800]"},
          {"--json", &o->json, "", "One JSON object on stdout"},
          {"-o,--out", &o->out, "FILE", "Write the JSON here too"},
      });
  command.footer = kFooter;
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::cli
