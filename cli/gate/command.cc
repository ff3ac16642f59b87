// cli/gate/command.cc: `tessera gate`: each kernel of ours against plain XLA,
// on this machine.
#include "cli/command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/dtype_word.h"
#include "base/fail.h"
#include "base/files.h"
#include "base/json_read.h"
#include "base/text.h"
#include "cli/data/attention_data.h"
#include "cli/data/random_inputs.h"
#include "cli/gate/cases.h"
#include "cli/machine.h"
#include "cli/numbers.h"
#include "cli/progress.h"
#include "receipt/machine.h"
#include "tessera/session.h"
#include "tessera/version.h"

namespace tessera::cli {
namespace {

constexpr int64_t kMostRounds = 1000;
// Scores of all heads that the dense program may hold at once.
constexpr double kMostDenseScores = 1 << 28;

struct Options {
  std::optional<std::string> tokens, dtype, heads, head_dim, rounds, plugin,
      out;
  bool quick = false;
  bool record = false;
  bool json = false;
};

struct Plain {
  XlaMethod method;
  Session session;
};

// Times in ms, the least of all rounds.
struct Times {
  double kernel = 0;
  double plain = 0;
  XlaMethod method = XlaMethod::chunked;
};

// Ours with what it prepares once a batch; XLA's program alone, without its
// compile and the arrays' way to the device.
double time_of(LaneId lane, const Counters& ran) {
  return ran.forward_ms + ran.backward_ms +
         (lane == LaneId::xla ? 0 : ran.prepare_ms);
}

Result<Times> measure(const GateCase& c, const Batch& batch, int64_t rounds,
                      std::vector<Plain>& plains) {
  AttentionData data;
  data.batch = c.request.batch;
  data.q_len = c.request.q_len;
  data.kv_len = c.request.kv_len;
  data.shape = c.shape;
  data.dtype = c.dtype;
  data.backward = c.backward;
  const double needed = 4 * data_bytes(data).all;
  if (needed > static_cast<double>(available_memory())) {
    return over_limit("gate",
                      "the arrays must fit the memory that is free, "
                      "found {:.3g} bytes for them",
                      needed);
  }
  data.allocate();
  fill_inputs(data, 0);
  const double scores = static_cast<double>(c.shape.heads) *
                        static_cast<double>(data.q_len) *
                        static_cast<double>(data.kv_len);
  SessionOptions own;
  own.lane = c.lane;
  auto ours = Session::open(own);
  if (!ours) return ours.error();
  Times out;
  const auto run = [&](LaneId lane, const Session& session, double& best,
                       bool counts) -> Result<void> {
    auto ready = session.prepare(batch, data.call());
    if (!ready) return ready.error();
    auto saved = ready->forward(data.forward_tensors());
    if (!saved) return saved.error();
    if (data.backward) {
      auto e = ready->backward(*saved, data.gradients());
      if (!e) return e;
    }
    const double ms = time_of(lane, ready->counters());
    if (counts && (best == 0 || ms < best)) best = ms;
    return {};
  };
  std::vector<double> best(plains.size(), 0);
  // The first round warms up; then all take turns.
  for (int64_t round = 0; round <= rounds; ++round) {
    const bool counts = round > 0;
    if (auto e = run(c.lane, *ours, out.kernel, counts); !e) return e.error();
    for (size_t i = 0; i < plains.size(); ++i) {
      if (plains[i].method == XlaMethod::dense && scores > kMostDenseScores) {
        continue;
      }
      auto e = run(LaneId::xla, plains[i].session, best[i], counts);
      if (!e) return e.error();
    }
  }
  for (size_t i = 0; i < plains.size(); ++i) {
    if (best[i] > 0 && (out.plain == 0 || best[i] < out.plain)) {
      out.plain = best[i];
      out.method = plains[i].method;
    }
  }
  return out;
}

GateRow row_of(const GateCase& c, const Plan& plan, const Machine& machine) {
  GateRow row;
  CallFeatures call;
  call.dtype = c.dtype;
  call.backward = c.backward;
  row.kernel = c.kernel;
  row.lane = c.lane;
  row.machine = machine.key();
  row.request_class = features_of(c.request, {}, c.shape, call).request_class;
  row.mask = to_string(c.request.masks[0]);
  row.backward = c.backward;
  row.dtype = c.dtype;
  row.q_len = c.request.q_len;
  row.kv_len = c.request.kv_len;
  row.shape = c.shape;
  row.density = plan_facts(plan).density();
  return row;
}

Result<GateSizes> read_sizes(const Options& o) {
  GateSizes out;
  out.tokens = {1024, 4096};
  if (o.quick) {
    out.tokens = {256};
    out.heads = 2;
    out.head_dim = 64;
    out.decode_keys = 512;
  }
  if (o.tokens) {
    auto tokens = parse_ints(*o.tokens, "--tokens", 64, 1 << 17);
    if (!tokens) return tokens.error();
    out.tokens.assign(tokens->begin(), tokens->end());
  }
  for (const std::string_view word :
       split(o.dtype ? std::string_view(*o.dtype) : "f32,bf16", ',')) {
    if (word != "f32" && word != "bf16") {
      return invalid("cli", "--dtype must be f32, bf16 or both, found {}",
                     in_quotes(word));
    }
    out.dtypes.push_back(word == "f32" ? Dtype::f32 : Dtype::bf16);
  }
  if (o.heads) {
    auto heads = parse_int(*o.heads, "--heads", 1, 1024);
    if (!heads) return heads.error();
    out.heads = *heads;
  }
  if (o.head_dim) {
    auto dim = parse_int(*o.head_dim, "--head-dim", 8, 256);
    if (!dim) return dim.error();
    if (*dim % 8 != 0) {
      return invalid("cli", "--head-dim must be a multiple of 8, found {}",
                     *dim);
    }
    out.head_dim = *dim;
  }
  return out;
}

struct Measured {
  GateTable table;
  std::string plugin;  // or why there is none
  double busy_cores = 0;
};

Result<Measured> measure_all(const Options& o, const Machine& machine) {
  auto sizes = read_sizes(o);
  if (!sizes) return sizes.error();
  auto rounds = parse_int(o.rounds.value_or(o.quick ? "1" : "5"), "--rounds", 1,
                          kMostRounds);
  if (!rounds) return rounds.error();
  Measured out;
  std::vector<Plain> plains;
  for (const XlaMethod method : {XlaMethod::dense, XlaMethod::chunked}) {
    SessionOptions options;
    options.lane = LaneId::xla;
    options.xla.method = method;
    if (o.plugin) options.xla.plugin = *o.plugin;
    auto session = Session::open(std::move(options));
    auto place =
        session ? session->place() : Result<PluginPlace>(session.error());
    if (!place) {
      if (place.error().kind != ErrorKind::unavailable || o.plugin) {
        return place.error();
      }
      out.plugin = place.error().message;
      break;
    }
    out.plugin = std::filesystem::path(place->plugin).filename();
    plains.push_back({method, std::move(*session)});
  }
  const OtherCores others;
  Progress progress("measuring");
  const auto shown = progress.callback();
  const std::vector<GateCase> cases = gate_cases(*sizes);
  for (size_t i = 0; i < cases.size(); ++i) {
    const GateCase& c = cases[i];
    Facts facts;
    if (!c.doc_ids.empty()) facts.doc_ids = c.doc_ids;
    auto batch = BorrowedBatch::make(c.request, facts);
    if (!batch) return batch.error();
    GateRow row = row_of(c, batch->plan(), machine);
    if (c.lane == LaneId::mosaic) {
      row.why = "no TPU here runs it: this version only compiles it";
    } else if (plains.empty()) {
      row.why = out.plugin;
    } else {
      auto times = measure(c, *batch, *rounds, plains);
      if (!times) return times.error();
      row.kernel_ms = times->kernel;
      row.plain_ms = times->plain;
      row.plain = times->method;
      row.verdict = judge_gate(times->kernel, times->plain);
    }
    out.table.rows.push_back(std::move(row));
    if (shown) {
      shown(static_cast<double>(i + 1) / static_cast<double>(cases.size()));
    }
  }
  out.busy_cores = others.so_far();
  return out;
}

std::string table_json(const Measured& m, const Machine& machine, bool quick) {
  Json out = Json::parse(gate_json(m.table));
  out["machine"] = machine.key();
  out["tessera"] = kVersion;
  out["quick"] = quick;
  out["plugin"] = is_utf8(m.plugin) ? m.plugin : in_quotes(m.plugin);
  out["busy_cores"] = m.busy_cores;
  return out.dump(2) + "\n";
}

std::string table_text(const Measured& m, const Machine& machine) {
  std::string out = fmt::format("machine     {}\nplain XLA   {}\n\n",
                                machine.key(), in_quotes(m.plugin, 1000));
  out += fmt::format(
      "{:<15} {:<32} {:<5} {:>6} {:>6} {:>8} {:>10} {:>10} "
      "{:>7}  {}\n",
      "kernel", "mask", "dtype", "q", "kv", "density", "ours ms", "plain ms",
      "factor", "verdict");
  for (const GateRow& r : m.table.rows) {
    const auto ms = [](const std::optional<double>& v) {
      return v ? fmt::format("{:.3f}", *v) : std::string("-");
    };
    out += fmt::format(
        "{:<15} {:<32} {:<5} {:>6} {:>6} {:>8.3f} {:>10} {:>10} {:>7}  {}\n",
        r.kernel, r.mask + (r.shape.softcap != 0 ? ", softcap" : ""),
        dtype_word(r.dtype), r.q_len, r.kv_len, r.density, ms(r.kernel_ms),
        ms(r.plain_ms),
        r.kernel_ms ? fmt::format("{:.2f}", *r.plain_ms / *r.kernel_ms) : "-",
        to_string(r.verdict));
  }
  if (m.busy_cores > 0.5) {
    out += fmt::format("\nOther programs kept {:.1f} cores busy meanwhile.\n",
                       m.busy_cores);
  }
  return out;
}

Result<int> run(const Options& o) {
  const Machine machine = this_machine(true);
  std::optional<std::string> path = o.out;
  if (o.record) {
    if (o.out) {
      return invalid("cli", "--record names the file itself, found -o {}",
                     in_quotes(*o.out));
    }
    const std::string folder = "bench/results/" + slug(machine.cpu);
    std::error_code e;
    std::filesystem::create_directories(folder, e);
    path = folder + "/gate.json";
  }
  if (path) {
    if (auto e = check_output(*path); !e) return e.error();
  }
  auto measured = measure_all(o, machine);
  if (!measured) return measured.error();
  const std::string text = table_json(*measured, machine, o.quick);
  if (path) {
    if (auto e = write_file(*path, text); !e) return e.error();
  }
  if (o.json) {
    fmt::print("{}", text);
  } else {
    fmt::print("{}", table_text(*measured, machine));
    if (path) fmt::print("\n{:<11} {}\n", "table", on_a_line(*path));
  }
  return kOk;
}

}  // namespace

Command gate_command() {
  auto o = std::make_shared<Options>();
  Command command{
      "gate", "Measure each of our kernels against plain XLA, with a verdict"};
  add_flags(
      command,
      {
          {"--tokens", &o->tokens, "N[,N...]", "Lengths [1024,4096]"},
          {"--dtype", &o->dtype, "NAME[,NAME]", "f32, bf16 [both]"},
          {"--heads", &o->heads, "N", "Heads [8]"},
          {"--head-dim", &o->head_dim, "N", "Of all arrays [128]"},
          {"--rounds", &o->rounds, "N", "The least of so many counts [5]"},
          {"--plugin", &o->plugin, "NAME",
           "Whose compiler plain XLA is: a file or a known name "
           "[xla_cpu_pjrt]"},
          {"-o,--out", &o->out, "FILE", "Write the table as JSON"},
          {"--record", &o->record, "",
           "Write it to bench/results/MACHINE/gate.json"},
          {"--quick", &o->quick, "", "Tiny sizes, one round"},
          {"--json", &o->json, "", "The table as JSON on stdout"},
      });
  command.footer =
      "The whole takes ten minutes or more; a table is written when it is "
      "done.\n"
      "Verdicts: promote where a kernel is more than 1.10 times as fast as the "
      "faster of\nXLA's two plain programs (dense, chunked), experimental "
      "where more than 1.03,\ndelete where less: a tie removes. Rows of a "
      "device that is not here are\nunmeasured. `tessera run --gate FILE` "
      "reads the table (docs/dispatch.md).";
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::cli
