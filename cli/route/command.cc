// cli/route/command.cc: `tessera route`: the router, stage by stage.
#include "cli/command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "base/threads.h"
#include "base/timed.h"
#include "cli/data/clustered_inputs.h"
#include "cli/numbers.h"
#include "cli/plan/report.h"
#include "cli/request/file_checks.h"
#include "cli/request/routed_picks.h"
#include "cli/route/flags.h"
#include "cli/route/inputs.h"
#include "cli/route/report.h"
#include "cli/run/options.h"
#include "cli/terminal.h"
#include "cli/trace_flag.h"
#include "picture/picture.h"
#include "receipt/machine.h"

namespace tessera::cli {
namespace {

constexpr const char* kDefaultMask = "causal & routed(top=8, block=256)";

struct Options {
  RunFlags run;  // of which the request and the sizes of q and k are read
  RouteFlags route;
  std::optional<std::string> stage, spread, batch_row, head, width;
  bool recall = false;
  bool ascii = false;
  bool no_picture = false;
};

// The last stage to run; nothing: all of them, then the plan.
Result<std::optional<RouteStage>> stage_of(const Options& o) {
  if (!o.stage || *o.stage == "plan") return std::optional<RouteStage>();
  std::vector<std::string_view> names;
  for (int i = 0; i < kRouteStages; ++i) {
    const auto stage = static_cast<RouteStage>(i);
    if (*o.stage == to_string(stage)) return std::optional(stage);
    names.push_back(to_string(stage));
  }
  return invalid("cli", "--stage must be one of {}, plan, found {}",
                 fmt::join(names, ", "), in_quotes(*o.stage));
}

// What the command works on, owning the arrays that the router views.
struct Job {
  Resolved resolved;
  RouteSettings settings;
  std::optional<RouteStage> until;
  Array q, k;
  bool arrays = false;
  int64_t batch_row = 0, head = 0;  // of the pictures
  std::optional<int64_t> width;
  PicksFile picks;
  RouteOptions options;
  RouteReport report;

  RouteInputs inputs() const {
    RouteInputs in;
    if (arrays) in.q = q.view(), in.k = k.view();
    picks.add_to(in);
    return in;
  }
};

std::string arrays_text(const TensorView& q, const TensorView& k) {
  return fmt::format("{} head{} on {} of K, dim {}, {}", q.heads,
                     q.heads == 1 ? "" : "s", k.heads, q.dim,
                     to_string(q.dtype));
}

// Flags that say what to draw, where nothing is drawn.
Result<void> check_undrawn(const Options& o, std::string_view source) {
  for (const auto& [flag, name] :
       {std::pair(&o.run.heads, "--heads"),
        std::pair(&o.run.kv_heads, "--kv-heads"),
        std::pair(&o.run.head_dim, "--head-dim"),
        std::pair(&o.run.dtype, "--dtype"), std::pair(&o.run.seed, "--seed"),
        std::pair(&o.spread, "--spread")}) {
    if (!*flag) continue;
    return invalid("cli", "{} says what {} would, found both", source, name);
  }
  return {};
}

Result<void> read_arrays(const Options& o, Layout layout, Job& job) {
  if (auto e = check_undrawn(o, "--inputs"); !e) return e;
  auto bytes = read_file(*o.run.inputs, available_memory());
  if (!bytes) return bytes.error();
  auto file = parse_safetensors(*bytes);
  if (!file) return file.error();
  auto q = read_array(*file, "q", layout);
  if (!q) return q.error();
  auto k = read_array(*file, "k", layout);
  if (!k) return k.error();
  job.q = std::move(*q);
  job.k = std::move(*k);
  job.arrays = true;
  job.report.inputs = fmt::format("q and k of {}", in_quotes(*o.run.inputs));
  return {};
}

Result<Clusters> read_clusters(const Options& o, const RouteSettings& s) {
  Clusters clusters;
  auto seed = parse_seed(o.run.seed.value_or("0"));
  if (!seed) return seed.error();
  clusters.seed = *seed;
  if (o.spread) {
    auto spread = parse_positive(*o.spread, "--spread");
    if (!spread) return spread.error();
    clusters.spread = *spread;
  }
  clusters.query_tile = s.query_tile;
  clusters.block = s.block;
  return clusters;
}

// Inputs of `sizes`, once all that may be wrong has been looked at.
Result<void> draw_arrays(const Options& o, const RunOptions& sizes,
                         Layout layout, Job& job) {
  auto clusters = read_clusters(o, job.settings);
  if (!clusters) return clusters.error();
  const AttentionShape& s = sizes.data.shape;
  const Dtype dtype = sizes.data.dtype;
  auto e =
      check_drawn(job.resolved, job.settings, {s.heads, s.kv_heads, s.head_dim},
                  dtype, job.options.threads);
  if (!e) return e;
  const Request& r = job.resolved.request;
  job.q = Array(dtype, layout, r.batch, s.heads, r.q_len, s.head_dim);
  job.k = Array(dtype, layout, r.batch, s.kv_heads, r.kv_len, s.head_dim);
  fill_clustered_queries(job.q, *clusters);
  fill_clustered_keys(job.k, *clusters);
  job.arrays = true;
  job.report.inputs = clusters->describe();
  return {};
}

// The request, with the lengths of q and k where they are from a file.
Result<void> read_request(const Options& o, Job& job) {
  RequestFlags flags = o.run.request;
  flags.picks.reset();
  if (flags.plan) {
    return invalid("cli", "--plan has its picks, found it for the router");
  }
  if (flags.masks.empty() && !flags.spec) flags.masks = {kDefaultMask};
  Lengths lengths;
  if (job.arrays) {
    lengths = {job.q.view().batch, job.q.view().tokens, job.k.view().tokens};
  }
  auto loaded = load_request(flags, lengths);
  if (!loaded) return loaded.error();
  job.resolved = std::move(loaded->resolved);
  if (job.resolved.given.picks) {
    return invalid("cli", "picks are given by --picks, found them in the spec");
  }
  return {};
}

Result<int64_t> index_of(const std::optional<std::string>& text,
                         std::string_view what, int64_t count) {
  if (!text) return int64_t{0};
  return parse_int(*text, what, 0, std::max<int64_t>(count, 1) - 1);
}

// What of the result the pictures show. `sizes` are those of drawn inputs.
Result<void> read_view(const Options& o, const RunOptions& sizes, Job& job) {
  RouteShape shape;
  if (job.arrays) {
    shape = {job.q.view().heads, job.k.view().heads, job.q.view().dim};
  } else {
    const AttentionShape& s = sizes.data.shape;
    shape = {s.heads, s.kv_heads, s.head_dim};
  }
  int64_t heads = heads_of(job.settings.rule, shape);
  for (const auto* given : {&job.picks.picks, &job.picks.tile_picks}) {
    if (*given) heads = (*given)->view().heads;
  }
  auto batch_row =
      index_of(o.batch_row, "--batch-row", job.resolved.request.batch);
  if (!batch_row) return batch_row.error();
  job.batch_row = *batch_row;
  auto head = index_of(o.head, "--head", heads);
  if (!head) return head.error();
  job.head = *head;
  if (!o.width) return {};
  auto width = parse_int(*o.width, "--width", picture::kMinTextColumns, 1000);
  if (!width) return width.error();
  job.width = *width;
  return {};
}

Result<Job> prepare(const Options& o) {
  Job job;
  auto until = stage_of(o);
  if (!until) return until.error();
  job.until = *until;
  if (o.recall && job.until && *job.until < RouteStage::legality) {
    return invalid("cli", "--recall compares legal picks, found --stage {}",
                   *o.stage);
  }
  if (o.run.layout && *o.run.layout != "bhsd" && *o.run.layout != "bshd") {
    return invalid("cli", "--layout must be one of bhsd, bshd, found {}",
                   in_quotes(*o.run.layout));
  }
  const Layout layout = o.run.layout == "bshd" ? Layout::bshd : Layout::bhsd;
  if (o.run.inputs) {
    if (auto e = read_arrays(o, layout, job); !e) return e.error();
  }
  if (auto e = read_request(o, job); !e) return e.error();
  const Request& request = job.resolved.request;
  auto settings = read_route_settings(o.route, request);
  if (!settings) return settings.error();
  job.settings = *settings;
  if (o.run.threads) {
    auto threads = parse_int(*o.run.threads, "--threads", 1, kMaxThreads);
    if (!threads) return threads.error();
    job.options.threads = static_cast<int>(*threads);
  }
  if (o.run.isa) {
    auto isa = parse_isa(*o.run.isa);
    if (!isa) return isa.error();
    job.options.isa = *isa;
  }
  RouteReport& report = job.report;
  if (o.run.request.picks) {
    auto drawn = parse_drawn(*o.run.request.picks);
    if (!drawn) return drawn.error();
    if (*drawn) {
      return invalid("cli",
                     "route draws clustered inputs by itself, so --picks must "
                     "be a file, found {}",
                     in_quotes(*o.run.request.picks));
    }
    auto picks =
        read_picks_file(*o.run.request.picks, request, job.settings.query_tile);
    if (!picks) return picks.error();
    job.picks = std::move(*picks);
    report.given = job.picks.picks || job.picks.tile_picks;
    if (auto e = check_unread(o.route, job.picks); !e) return e.error();
    if (report.given && !job.arrays) {
      if (auto e = check_undrawn(o, "--picks"); !e) return e.error();
    }
    const std::string from =
        fmt::format("picks of {}", in_quotes(*o.run.request.picks));
    report.inputs = report.inputs.empty() ? from : report.inputs + "; " + from;
  }
  if (report.given && job.until && *job.until < RouteStage::legality) {
    return invalid("cli",
                   "given picks enter at legality, found --stage {} before it",
                   *o.stage);
  }
  const bool drawn = !job.arrays && !report.given;
  RunOptions sizes;
  if (drawn) {
    if (auto e = read_shape(o.run, sizes); !e) return e.error();
  }
  if (auto e = read_view(o, sizes, job); !e) return e.error();
  if (drawn) {
    const std::string picks = report.inputs;
    if (auto e = draw_arrays(o, sizes, layout, job); !e) return e.error();
    if (!picks.empty()) report.inputs += "; " + picks;
  }
  report.request = request;
  report.mask = fmt::format("{}", fmt::join(job.resolved.written, "; "));
  if (job.arrays) {
    report.arrays =
        arrays_text(std::as_const(job.q).view(), std::as_const(job.k).view());
  }
  report.threads =
      job.options.threads > 0 ? job.options.threads : machine_threads();
  report.until = job.until.value_or(RouteStage::expand);
  return job;
}

Result<void> route_timed(Job& job) {
  using Clock = std::chrono::steady_clock;
  auto last = Clock::now();
  RouteOptions options = job.options;
  options.until = job.report.until;
  options.memory = available_memory();
  options.after = [&](RouteStage stage) {
    job.report.ms[static_cast<size_t>(stage)] += ms_since(last);
    last = Clock::now();
  };
  auto routed = route(job.resolved.request, job.resolved.facts.view(),
                      job.inputs(), job.settings, options);
  if (!routed) return routed.error();
  job.report.result = std::move(*routed);
  return {};
}

Result<void> find_recall(Job& job) {
  RouteSettings exhaustive = job.settings;
  exhaustive.hierarchical = false;
  RouteOptions options = job.options;
  options.until = RouteStage::legality;
  options.memory = available_memory();
  RouteInputs in = job.inputs();
  in.metas.reset();
  auto all = route(job.resolved.request, job.resolved.facts.view(), in,
                   exhaustive, options);
  if (!all) return all.error();
  auto recall = route_recall(job.report.result, *all);
  if (!recall) return recall.error();
  job.report.recall = *recall;
  return {};
}

Result<BorrowedBatch> plan_timed(Job& job) {
  const Request& request = job.resolved.request;
  const Facts facts = job.report.result.facts(job.resolved.facts.view());
  auto batch = BorrowedBatch::make(request, facts);
  if (!batch) return batch;
  job.report.plan_ms = batch->plan_ms();
  auto statistics = make_statistics(*batch);
  if (!statistics) return statistics.error();
  job.report.plan = std::move(*statistics);
  Request causal_request = request;
  causal_request.masks = {*make_mask(causal())};
  Facts others = facts;
  others.picks.reset();
  auto dense = BorrowedBatch::make(std::move(causal_request), others);
  if (!dense) return dense.error();
  job.report.causal_tiles =
      static_cast<int64_t>(dense->plan().forward.entries.size()) *
      batch->plan().heads;
  return batch;
}

// What the queries of each tile row pick: full where all pick the block,
// partial where some do; all of them are the row's union.
Result<std::string> picks_picture(const Job& job, const picture::Input& like) {
  const RouteSettings& s = job.settings;
  if (s.query_tile < kMinBlock || s.query_tile > kMaxBlock ||
      s.block < kMinBlock || s.block > kMaxBlock) {
    return fmt::format("no picture of tiles of {} x {} tokens\n", s.query_tile,
                       s.block);
  }
  Request request = job.resolved.request;
  request.masks = {*make_mask(blocks(s.block))};
  request.tile = {s.query_tile, s.block};
  request.logical_block = {0, 0};
  Facts facts;
  const RouteResult& r = job.report.result;
  facts.picks = Picks{r.picks, r.heads, r.k};
  auto batch = BorrowedBatch::make(std::move(request), facts);
  if (!batch) return batch.error();
  picture::Input input{batch->plan(),
                       facts,
                       "picks and their union: full where every "
                       "query of the row picks the block",
                       like.batch_row,
                       like.head,
                       like.columns};
  input.color = like.color;
  input.unicode = like.unicode;
  return picture::draw_text(input);
}

Result<std::string> pictures(const Options& o, const Job& job,
                             const Batch& batch) {
  const RouteResult& r = job.report.result;
  const Plan& plan = batch.plan();
  picture::Input input{
      plan,
      batch.facts(),
      "tiles: " + job.report.mask,
      job.batch_row,
      job.head * plan.heads / r.heads,
      job.width ? *job.width
                : std::max(picture::kMinTextColumns, terminal_columns())};
  input.color = shows_color(isatty(STDOUT_FILENO), std::getenv("NO_COLOR"),
                            std::getenv("TERM"));
  input.unicode = !o.ascii && locale_is_utf8();
  picture::Input picks = input;
  picks.head = job.head;
  auto first = picks_picture(job, picks);
  if (!first) return first;
  auto second = picture::draw_text(input);
  if (!second) return second;
  return "\n" + *first + "\n" + *second;
}

Result<void> check(const Options& o) {
  if (o.recall && !o.route.hierarchical) {
    return invalid("cli",
                   "--recall is of --hierarchical routing, found it alone");
  }
  std::vector<std::string> read = request_files(o.run.request);
  if (o.run.inputs) read.push_back(*o.run.inputs);
  return check_files(std::move(read),
                     given_files({&o.run.outputs, &o.run.trace}));
}

Result<int> run(const Options& o) {
  auto prepared = prepare(o);
  if (!prepared) return prepared.error();
  Job& job = *prepared;
  if (o.run.outputs && job.report.until < RouteStage::legality) {
    return invalid("cli", "--outputs holds legal picks, found --stage {}",
                   *o.stage);
  }
  if (auto e = route_timed(job); !e) return e.error();
  for (const std::string& warning : job.report.result.warnings) {
    print_error(fmt::format("tessera: warning: {}\n", warning));
  }
  if (o.recall) {
    if (auto e = find_recall(job); !e) return e.error();
  }
  std::string picture;
  if (!job.until) {
    auto batch = plan_timed(job);
    if (!batch) return batch.error();
    print_warnings(batch->plan().warnings);
    if (!o.run.json && !o.no_picture) {
      auto drawn = pictures(o, job, *batch);
      if (!drawn) return drawn.error();
      picture = std::move(*drawn);
    }
  }
  if (o.run.outputs) {
    auto e =
        write_picks(*o.run.outputs, job.resolved.request, job.report.result);
    if (!e) return e.error();
  }
  if (o.run.json) {
    fmt::print("{}\n", json_line(route_json(job.report)));
    return kOk;
  }
  fmt::print("{}", route_text(job.report));
  if (o.run.outputs)
    fmt::print("{:<11} {}\n", "outputs", on_a_line(*o.run.outputs));
  fmt::print("{}", picture);
  return kOk;
}

constexpr const char* kFooter =
    "Examples:\n"
    "  tessera route --q-len 8192 --heads 8 --kv-heads 2 --head-dim 64\n"
    "  tessera route --mask 'causal & documents & routed(top=4, block=128)' "
    "\\\n"
    "      --q-len 8192 --docs lognormal --rule moba\n"
    "  tessera route --q-len 8192 --stage score --json\n"
    "  tessera route --inputs qk.safetensors --outputs picks.safetensors\n"
    "  tessera route --q-len 4096 --picks picks.safetensors --meaning union\n"
    "\n"
    "Stages, in order: pool, window, coarse (with --hierarchical), score, "
    "top_n,\nlegality, union, expand, plan. --picks FILE holds I32 or I64 "
    "tensors: "
    "picks [batch,\nheads, q_len, k], tile_picks [batch, heads, query tiles, "
    "k] or metas [batch,\nheads, q_len, k], -1 unused. docs/routing.md "
    "explains "
    "the stages.";

}  // namespace

Command route_command() {
  auto o = std::make_shared<Options>();
  Command command{
      "route", "Clustered sparse attention: picks, unions, tiles, by stages"};
  add_request_flags(command, o->run.request);
  add_flags(
      command,
      {
          {"--heads", &o->run.heads, "N", "Query heads [8]"},
          {"--kv-heads", &o->run.kv_heads, "N", "Key heads [heads]"},
          {"--head-dim", &o->run.head_dim, "N", "Of queries and keys [128]"},
          {"--dtype", &o->run.dtype, "NAME", "f32, bf16 or f16 [f32]"},
          {"--layout", &o->run.layout, "NAME",
           "bhsd, [batch, heads, tokens, dim], or bshd [bhsd]"},
          {"--inputs", &o->run.inputs, "FILE",
           ".safetensors with q and k; what else it holds is not read "
           "[clustered inputs from the seed]"},
          {"--seed", &o->run.seed, "N", "Of clustered inputs [0]"},
          {"--spread", &o->spread, "X",
           "Noise of clustered inputs around their centroids [0.1]"},
      });
  add_route_flags(command, o->route);
  add_flags(
      command,
      {
          {"--recall", &o->recall, "",
           "With --hierarchical: compare with exhaustive routing"},
          {"--stage", &o->stage, "NAME", "Stop after this stage [plan]"},
          {"--threads", &o->run.threads, "N", "[every core]"},
          {"--isa", &o->run.isa, "NAME",
           "portable, avx2, avx512 or avx512bf16; picks do not depend on it "
           "[TESSERA_ISA, or the best]"},
          {"--outputs", &o->run.outputs, "FILE",
           "Write picks, slots and unions to a .safetensors file"},
          {"--trace", &o->run.trace, "FILE", kTraceHelp},
          {"--batch-row", &o->batch_row, "B", "Of the pictures [0]"},
          {"--head", &o->head, "H", "Of the pictures: one that picks [0]"},
          {"--width", &o->width, "N",
           "Columns of the pictures [the terminal's]"},
          {"--ascii", &o->ascii, "", "Pictures without Unicode blocks"},
          {"--no-picture", &o->no_picture, "", "The stages alone"},
          {"--json", &o->run.json, "", "One JSON object on stdout"},
      });
  command.footer = kFooter;
  command.work = [o]() -> Result<int> {
    if (auto e = check(*o); !e) return e.error();
    return traced(o->run.trace, !o->run.json, [&] { return run(*o); });
  };
  return command;
}

}  // namespace tessera::cli
