// cli/bench_xla.cc: `tessera bench xla`: what the worklist saves the xla lane,
// beside its own chunked and dense programs and the cpu lane.
#include <fmt/format.h>

#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "base/timed.h"
#include "cli/attention_data.h"
#include "cli/bench.h"
#include "cli/bench_cases.h"
#include "cli/bench_rows.h"
#include "cli/machine.h"
#include "cli/numbers.h"
#include "cli/progress.h"
#include "cli/random_inputs.h"
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
constexpr std::string_view kCpu = "cpu";

// As typed.
struct Options {
  std::string tokens = "8192";
  std::string cases = "window";
  std::string dtype = "f32,bf16";
  std::string methods = "worklist,chunked,dense";
  std::string heads = "4";
  std::string head_dim = "128";
  std::string rounds = "3";
  std::string plugin = "xla_cpu_pjrt";
  std::string device = "0";
  std::optional<std::string> cache, out;
  bool backward = false;
  bool json = false;
};

struct Settings {
  int64_t tokens = 0, rounds = 0;
  AttentionShape shape;
  std::vector<Dtype> dtypes;
  std::vector<const AttentionCase*> cases;
  std::vector<XlaMethod> methods;
  XlaOptions xla;
};

// All but decode, whose worklist is its keys.
std::string xla_cases() {
  std::string out;
  for (const AttentionCase& c : attention_cases()) {
    if (c.decode) continue;
    out += out.empty() ? "" : ", ";
    out += c.name;
  }
  return out;
}

Result<Settings> parse(const Options& o) {
  Settings s;
  auto tokens = parse_int(o.tokens, "--tokens", 64, 1 << 17);
  if (!tokens) return tokens.error();
  auto rounds = parse_int(o.rounds, "--rounds", 1, 1000);
  if (!rounds) return rounds.error();
  auto heads = parse_int(o.heads, "--heads", 1, 1024);
  if (!heads) return heads.error();
  auto dim = parse_int(o.head_dim, "--head-dim", 8, 512);
  if (!dim) return dim.error();
  auto device = parse_int(o.device, "--device", 0, INT32_MAX);
  if (!device) return device.error();
  for (const std::string_view word : split(o.dtype, ',')) {
    if (word != "f32" && word != "bf16") {
      return invalid("cli", "--dtype must be of f32 and bf16, found {}",
                     in_quotes(word));
    }
    s.dtypes.push_back(word == "f32" ? Dtype::f32 : Dtype::bf16);
  }
  for (const std::string_view word : split(o.cases, ',')) {
    const AttentionCase* c = find_case(word);
    if (!c || c->decode) {
      return invalid("cli", "--cases must be of {}, found {}", xla_cases(),
                     in_quotes(word));
    }
    s.cases.push_back(c);
  }
  for (const std::string_view word : split(o.methods, ',')) {
    auto method = parse_xla_method(word);
    if (!method) return method.error();
    s.methods.push_back(*method);
  }
  if (o.cache && o.cache->empty()) {
    return invalid("cli", "--cache must be a folder, found ''");
  }
  if (o.out) {
    if (auto e = check_output(*o.out); !e) return e.error();
  }
  s.tokens = *tokens;
  s.rounds = *rounds;
  s.shape.heads = s.shape.kv_heads = *heads;
  s.shape.head_dim = s.shape.v_head_dim = *dim;
  s.xla.plugin = o.plugin;
  s.xla.device = *device;
  s.xla.cache_folder = o.cache.value_or("");
  return s;
}

// What all of one table compute.
struct Problem {
  const AttentionCase* what = nullptr;
  Dtype dtype = Dtype::f32;
  Direction direction = Direction::forward;
  std::optional<OwnedBatch> batch;
  AttentionData data;

  const Plan& plan() const { return batch->plan(); }

  double density() const {
    return static_cast<double>(plan().legal_pairs[0]) /
           static_cast<double>(data.q_len * data.kv_len);
  }
  double tile_density() const {
    return static_cast<double>(plan().forward.entries.size()) /
           static_cast<double>(plan().forward.rows * plan().forward.columns);
  }
};

// One way to compute it, and what that took.
struct Contender {
  std::string name;  // "worklist"
  std::function<Result<void>(Problem&)> run;
  std::vector<double> ms;
  double first_ms = 0;  // with the compile
  double max_ratio = 0;
  std::string worst;
  std::string why;  // it did not run
};

Result<void> bind(Problem& p, const Settings& s) {
  auto mask = parse_mask(p.what->mask);
  if (!mask) return mask.error();
  Request request;
  request.masks = {std::move(*mask)};
  request.q_len = request.kv_len = s.tokens;
  OwnedFacts facts;
  if (p.what->documents) facts.doc_ids = packed_ids(s.tokens);
  auto batch = OwnedBatch::make(std::move(request), std::move(facts));
  if (!batch) return batch.error();
  p.batch = std::move(*batch);
  AttentionData& data = p.data;
  data.q_len = data.kv_len = s.tokens;
  data.shape = s.shape;
  data.shape.softcap = p.what->softcap;
  data.dtype = p.dtype;
  data.backward = p.direction == Direction::backward;
  data.allocate();
  fill_inputs(data, 0);
  return {};
}

Result<void> run_cpu(Problem& p) {
  auto work = cpu_prepare(*p.batch);
  if (!work) return work.error();
  auto forward = cpu_forward(*work, p.data.shape, p.data.forward_tensors());
  if (!forward) return forward.error();
  if (!p.data.backward) return {};
  auto backward = cpu_backward(*work, p.data.shape, p.data.backward_tensors());
  if (!backward) return backward.error();
  return {};
}

Result<void> run_xla(const XlaLane& lane, Problem& p) {
  auto forward = lane.forward(*p.batch, p.data.shape, p.data.forward_tensors());
  if (!forward) return forward.error();
  if (!p.data.backward) return {};
  auto backward =
      lane.backward(*p.batch, p.data.shape, p.data.backward_tensors());
  if (!backward) return backward.error();
  return {};
}

Result<double> time_of(const Contender& c, Problem& p) {
  double ms = 0;
  if (auto ok = timed(ms, [&] { return c.run(p); }); !ok) return ok.error();
  return ms;
}

Result<void> judge(Contender& c, Problem& p) {
  JudgeOptions options;
  options.flushes = c.name != kCpu;
  if (!can_judge_all(p.batch->request(), p.data.shape)) {
    options.query_rows = kQueryRows;
    options.key_rows = kKeyRows;
  }
  auto verdict = judge_forward(p.batch->request(), p.batch->facts(),
                               p.data.shape, p.data.forward_tensors(), options);
  if (!verdict) return verdict.error();
  c.max_ratio = verdict->max_ratio;
  c.worst = verdict->worst;
  if (!p.data.backward) return {};
  auto more = judge_backward(p.batch->request(), p.batch->facts(), p.data.shape,
                             p.data.backward_tensors(), options);
  if (!more) return more.error();
  if (more->max_ratio <= c.max_ratio) return {};
  c.max_ratio = more->max_ratio;
  c.worst = more->worst;
  return {};
}

// Each once, judged; then in turn, so that a machine that slows down favours
// nobody. Before a run that counts goes one that does not: after the gigabytes
// of a dense program the next run, of whatever it be, takes up to twice as
// long. What cannot run says why and is left out.
Result<void> measure(Problem& p, std::vector<Contender>& contenders,
                     int64_t rounds) {
  for (Contender& c : contenders) {
    Progress progress(c.name);
    // What one leaves behind must not pass for what the next one wrote.
    p.data.out = Array(p.dtype, Layout::bhsd, 1, p.data.shape.heads,
                       p.data.q_len, p.data.shape.v_head_dim);
    auto first = time_of(c, p);
    if (!first) {
      c.why = first.error().message;
      continue;
    }
    c.first_ms = *first;
    if (auto ok = judge(c, p); !ok) return ok;
  }
  for (int64_t round = 0; round < rounds; ++round) {
    Progress progress(fmt::format("round {}", round + 1));
    for (Contender& c : contenders) {
      if (!c.why.empty()) continue;
      auto settled = time_of(c, p);
      if (!settled) return settled.error();
      auto ms = time_of(c, p);
      if (!ms) return ms.error();
      c.ms.push_back(*ms);
    }
  }
  return {};
}

std::optional<double> median(const std::vector<Contender>& all,
                             std::string_view name) {
  for (const Contender& c : all) {
    if (c.name == name && !c.ms.empty()) return times_of(c.ms).median_ms;
  }
  return {};
}

std::optional<double> dense_to_worklist(const std::vector<Contender>& all) {
  const auto dense = median(all, to_string(XlaMethod::dense));
  const auto worklist = median(all, to_string(XlaMethod::worklist));
  if (!dense || !worklist) return {};
  return *dense / *worklist;
}

json table_json(const Problem& p, const std::vector<Contender>& all,
                double other_cores) {
  json rows = json::array();
  for (const Contender& c : all) {
    json row = {{"name", c.name == kCpu ? "cpu" : "xla " + c.name},
                {"why", c.why}};
    if (!c.ms.empty()) {
      const RunTimes times = times_of(c.ms);
      row["median_ms"] = times.median_ms;
      row["best_ms"] = times.best_ms;
      row["runs"] = c.ms;
      row["first_ms"] = c.first_ms;
      row["max_ratio"] = c.max_ratio;
      row["worst"] = c.worst;
    }
    rows.push_back(std::move(row));
  }
  json out = {
      {"case", p.what->name},         {"mask", p.what->mask},
      {"dtype", dtype_word(p.dtype)}, {"direction", to_string(p.direction)},
      {"density", p.density()},       {"tile_density", p.tile_density()},
      {"rows", std::move(rows)},      {"other_cores", other_cores}};
  if (const auto ratio = dense_to_worklist(all)) out["ratio"] = *ratio;
  return out;
}

void print_table(const Problem& p, const std::vector<Contender>& all,
                 double other_cores) {
  fmt::print(
      "{}, {}, {}: {:.1f} % of the pairs legal, {:.1f} % of the tiles "
      "active\n",
      p.what->mask, dtype_word(p.dtype), to_string(p.direction),
      100 * p.density(), 100 * p.tile_density());
  for (const Contender& c : all) {
    const std::string name = c.name == kCpu ? "cpu" : "xla " + c.name;
    if (!c.why.empty()) {
      fmt::print("  {:<13} not measured: {}\n", name, c.why);
      continue;
    }
    const RunTimes times = times_of(c.ms);
    fmt::print(
        "  {:<13} {:>9.1f} ms, best {:>9.1f}, first {:>9.1f}; {:.2g} % "
        "of the error bound\n",
        name, times.median_ms, times.best_ms, c.first_ms, 100 * c.max_ratio);
  }
  if (const auto ratio = dense_to_worklist(all)) {
    fmt::print("  dense / worklist {:.1f}\n", *ratio);
  }
  if (other_cores >= 0.1) {
    fmt::print("  not quiet: other processes kept {:.1f} cores busy\n",
               other_cores);
  }
  fmt::print("\n");
  std::fflush(stdout);
}

Result<int> run(const Options& o) {
  auto settings = parse(o);
  if (!settings) return settings.error();
  const Settings& s = *settings;
  std::vector<std::shared_ptr<XlaLane>> lanes;
  for (const XlaMethod method : s.methods) {
    XlaOptions options = s.xla;
    options.method = method;
    auto lane = XlaLane::open(options);
    if (!lane) return lane.error();
    lanes.push_back(std::make_shared<XlaLane>(std::move(*lane)));
  }
  const PluginPlace& place = lanes.front()->place();
  if (!o.json) {
    fmt::print(
        "{} tokens, {} heads, head dim {}; {}, {}. Medians of {} "
        "rounds, each with transfers "
        "and after a run\nthat does not count; nor does the first one, which "
        "compiles\n\n",
        s.tokens, s.shape.heads, s.shape.head_dim, cpu_model(), place.device,
        s.rounds);
  }
  json tables = json::array();
  bool passed = true;
  std::vector<Direction> directions = {Direction::forward};
  if (o.backward) directions.push_back(Direction::backward);
  for (const AttentionCase* what : s.cases) {
    for (const Dtype dtype : s.dtypes) {
      for (const Direction direction : directions) {
        Problem p;
        p.what = what;
        p.dtype = dtype;
        p.direction = direction;
        if (auto ok = bind(p, s); !ok) return ok.error();
        std::vector<Contender> all;
        for (size_t i = 0; i < lanes.size(); ++i) {
          Contender c;
          c.name = to_string(s.methods[i]);
          c.run = [lane = lanes[i]](Problem& q) { return run_xla(*lane, q); };
          all.push_back(std::move(c));
        }
        Contender cpu;
        cpu.name = kCpu;
        cpu.run = run_cpu;
        all.push_back(std::move(cpu));
        const OtherCores others;
        if (auto ok = measure(p, all, s.rounds); !ok) return ok.error();
        const double busy = others.so_far();
        tables.push_back(table_json(p, all, busy));
        if (!o.json) print_table(p, all, busy);
        for (const Contender& c : all) {
          if (c.max_ratio <= 1) continue;
          passed = false;
          fmt::print(stderr,
                     "tessera: [bench] every result must be within its bound, "
                     "found {:.3g} of it for {}: {}\n",
                     c.max_ratio, c.name, c.worst);
        }
      }
    }
  }
  const json result = {
      {"version", kVersion},
      {"cpu", cpu_model()},
      {"plugin", std::filesystem::path(place.plugin).filename().string()},
      {"platform", place.platform},
      {"device", place.device},
      {"tokens", s.tokens},
      {"heads", s.shape.heads},
      {"head_dim", s.shape.head_dim},
      {"rounds", s.rounds},
      {"passed", passed},
      {"tables", tables}};
  if (o.out) {
    if (auto e = write_file(*o.out, result.dump(2) + "\n"); !e) {
      return e.error();
    }
  }
  if (o.json) fmt::print("{}\n", result.dump(2));
  return passed ? kOk : kFailed;
}

}  // namespace

Command bench_xla_command() {
  auto o = std::make_shared<Options>();
  Command command{"xla", "The xla lane's worklist beside its dense program"};
  add_flags(
      command,
      {
          {"--tokens", &o->tokens, "N", "Length of the batch row [8192]"},
          {"--cases", &o->cases, "CASE,...", "Of " + xla_cases() + " [window]"},
          {"--dtype", &o->dtype, "TYPE,...", "Of f32 and bf16 [both]"},
          {"--methods", &o->methods, "NAME,...",
           "Of worklist, chunked and dense [all]"},
          {"--heads", &o->heads, "N", "Query and K/V heads [4]"},
          {"--head-dim", &o->head_dim, "N",
           "Of queries, keys and values [128]"},
          {"--rounds", &o->rounds, "N", "Runs of each, in turn [3]"},
          {"--plugin", &o->plugin, "NAME",
           "A file or a known name [xla_cpu_pjrt]"},
          {"--device", &o->device, "N", "Of the plugin's devices [0]"},
          {"--cache", &o->cache, "FOLDER",
           "Keep what is compiled there [nowhere]"},
          {"--backward", &o->backward, "",
           "Forward and backward too, as tables of their own"},
          {"--json", &o->json, "", "One JSON object on stdout"},
          {"-o,--out", &o->out, "FILE", "Write the JSON here too"},
      });
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::cli
